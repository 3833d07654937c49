//! SHOW and DESC: results read from the catalog and from the declarations of the library.

mod table;

use lockstep_diagnostic::Result;
use lockstep_sql::ast::Show;

pub(crate) use table::retention_text;

use crate::{Output, Session, system, user::Securable};

impl Session {
    /// Runs SHOW.
    pub(crate) fn show(&self, show: &Show) -> Result<Output> {
        match show {
            Show::Databases => {
                let objects = self.database.objects();
                let is_seen = |name: &&String| {
                    let caller = self.caller();
                    caller.is_process()
                        || caller.sees(&objects, Securable::Database((*name).clone()))
                };
                let names = objects.databases().keys().filter(is_seen);
                Output::of_list("database", names.map(String::as_str))
            }
            Show::Tables => {
                let objects = self.database.objects();
                let current = self.current_database();
                if objects.shows_system(&current) {
                    return Output::of_list("table", system::names());
                }
                let tables = objects.databases().get(&current);
                let is_seen = |name: &&String| self.caller().sees_table(&objects, &current, name);
                let names = tables.into_iter().flat_map(|found| found.tables.keys());
                let names = names.filter(is_seen);
                Output::of_list("table", names.map(String::as_str))
            }
            Show::Views => self.show_views(),
            Show::CreateView(name) => self.show_create_view(name),
            Show::Streams => self.show_streams(),
            Show::CreateStream(name) => self.show_create_stream(name),
            Show::Connectors(kind) => self.show_connectors(*kind),
            Show::CreateConnector(kind, name) => self.show_create_connector(*kind, name),
            Show::CreateTable(name) => self.show_create_table(name),
            Show::Indexes(name) => self.show_indexes(name),
            Show::TableStatus(like) => self.show_table_status(like.as_deref()),
            Show::Deployments => self.show_deployments(),
            Show::Deployment(name) => self.show_deployment(name),
            Show::Functions => functions(),
            Show::Variables => variables(self.variables().of_session()),
            Show::GlobalVariables => variables(self.database.objects().variables().all()),
            Show::Components => self.show_components(),
            Show::Memory => self.show_memory(),
            Show::Procedures => self.show_procedures(),
            Show::CreateProcedure(name) => self.show_create_procedure(name),
            Show::Jobs { like, .. } => self.show_jobs(like.as_deref()),
            Show::Job(id) => self.show_job(id),
            Show::JobLog(id) => self.show_job_log(id),
            Show::CurrentUser => Output::of_list("user", std::iter::once(self.user())),
            Show::Users => self.show_users(),
            Show::Roles => self.show_roles(),
            Show::Tokens(user) => self.show_tokens(user.as_ref()),
            Show::Grants(user) => self.show_grants(user.as_ref()),
        }
    }

    /// Runs SHOW COMPONENTS: the engine within the process is the only one.
    fn show_components(&self) -> Result<Output> {
        let row =
            ["in-process", "engine", &self.database.started_ms().to_string(), "online", "NULL"];
        Output::of_texts(
            &["Endpoint", "Role", "Connect_time", "Status", "Ns_role"],
            &[row.map(|text| Some(text.to_owned())).to_vec()],
        )
    }
}

/// Lists variables and their values.
fn variables<'a>(variables: impl Iterator<Item = (&'static str, &'a str)>) -> Result<Output> {
    let rows: Vec<_> = variables
        .map(|(name, value)| vec![Some(name.to_owned()), Some(value.to_owned())])
        .collect();
    Output::of_texts(&["Variable_name", "Value"], &rows)
}

/// Lists the function library from its declarations.
fn functions() -> Result<Output> {
    let scalars = lockstep_function::scalar::all()
        .filter(|function| !function.name.starts_with("op_"))
        .map(|function| (function.name, function.signature, "scalar", function.doc));
    let aggregates = lockstep_function::aggregate::all()
        .map(|function| (function.name, function.signature, "aggregate", function.doc));
    let mut rows: Vec<_> = scalars.chain(aggregates).collect();
    rows.sort_unstable();
    let rows: Vec<_> = rows
        .into_iter()
        .map(|(name, signature, kind, doc)| {
            [name, signature, kind, doc].map(|text| Some(text.to_owned())).to_vec()
        })
        .collect();
    Output::of_texts(&["name", "signature", "kind", "description"], &rows)
}
