//! DEPLOY, DROP DEPLOYMENT, SHOW DEPLOYMENTS and SHOW DEPLOYMENT.
//!
//! *Life of a DEPLOY*: read the options, bind the query, check the long windows, compile the
//! program (which builds the indexes that are missing), widen the retention of indexes that keep
//! too little, run the lints, and commit the command that gives the deployment its name. When the
//! name was taken or a table was dropped meanwhile, the catalog refuses the command.

mod answers;
mod labels;
mod long_window;
mod options;
mod retention;

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_request::PreAggregation;
use lockstep_row::DataType;
use lockstep_sql::ast::{Deploy, ObjectName};

use self::{labels::without_labels, options::DeployOptions};
use super::{at_name, outcome};
use crate::{
    DeploymentInfo, Output, PreparedRequest, Session,
    catalog::{CatalogCommand, Definition, DropSignal, ObjectKind, QualifiedName},
    database::TableSet,
    deployment::{Deployment, QuerySource, query_text, references},
    lint::{self, Purpose},
    view::views_of,
};

impl Session {
    /// Runs DEPLOY.
    pub(crate) fn deploy(&self, deploy: &Deploy, script: &str) -> Result<Output> {
        let name = self.qualified(&deploy.name);
        let tolerated = deploy.if_not_exists.then_some(code::DUPLICATE_OBJECT);
        let free = self.database.objects().check_deployment_free(&name, deploy.or_replace);
        if free.is_err() {
            return outcome(free, tolerated, &deploy.name, "DEPLOY");
        }
        let seen = self.database.objects().epoch();
        let (deployment, warnings) = self.compile_deployment(name, deploy, script)?;
        let (deployment, or_replace) = (Arc::new(deployment), deploy.or_replace);
        let command = CatalogCommand::CreateDeployment { deployment, or_replace, seen };
        let committed = self.database.commit(&command);
        Ok(Output { warnings, ..outcome(committed, tolerated, &deploy.name, "DEPLOY")? })
    }

    /// Compiles the deployment; the warnings are the second value.
    pub(super) fn compile_deployment(
        &self,
        name: QualifiedName,
        deploy: &Deploy,
        script: &str,
    ) -> Result<(Deployment, Vec<Diagnostic>)> {
        let (mut options, mut warnings) = options::read(&deploy.options)?;
        let training = self.bind(&deploy.query)?;
        let query = without_labels(&training)?;
        long_window::check(&options.long_windows, &query)?;
        let entries = self.database.entries_of(&training.plan)?;
        let work = self.database.pre_aggregate_work();
        let tables = TableSet::of(&entries)
            .owned_by(&name)
            .with_pre_aggregates(work)
            .spilling_to(self.database.temporary_storage());
        let definition = Definition::new(ObjectKind::Deployment, name);
        let pre_aggregation = self.pre_aggregation(&mut options);
        let (owner, owners) = self.owners_of(&definition, &query);
        let request = PreparedRequest::compile_deployed(
            &query,
            &tables,
            &definition,
            owners,
            pre_aggregation,
        )?;
        self.database.pre_aggregate_work().register(&request);
        let source = QuerySource::new(
            &query_text(script, deploy.query_span),
            &self.current_database(),
            self.settings(),
        );
        let answers = match &options.log_answers {
            Some((table, span)) => {
                let log = self.log_answers(table, &request, &query, &source);
                Some(log.map_err(|error| Box::new(error.at(*span)))?)
            }
            None => None,
        };
        let needed = retention::needed(&training.plan, &options);
        let held = retention::hold(&needed, &options, &entries, tables.owner())?;
        warnings.extend(held.warnings.into_iter().map(|w| w.at(deploy.name.name.span)));
        if !self.is_restored() {
            // Who opens a directory is not warned again, and rows would be read.
            warnings.extend(lint::check(&training, &tables, Purpose::Serving, script));
        }
        let deployment = Deployment {
            definition,
            sql: source.sql,
            request: Arc::new(request),
            tables: references(&training.plan),
            views: views_of(&training),
            answers,
            settings: self.settings(),
            current_database: self.current_database(),
            indexes: self.indexes_of(&training.plan),
            options: options.written,
            owner,
            holds: held.holds,
            dropped: DropSignal::default(),
            query,
            training,
        };
        Ok((deployment, warnings))
    }

    /// Returns for which keys windows have pre-aggregates: as the options say, for all where they name
    /// long windows, or else as the session says. What is not the default is added to the options, which
    /// the deployment is made of again when the database is opened.
    fn pre_aggregation(&self, options: &mut DeployOptions) -> PreAggregation {
        let variables = self.variables();
        let value = match &options.pre_aggregation {
            Some(written) => written.clone(),
            None if !options.long_windows.is_empty() => return PreAggregation::Always,
            None => {
                let value = variables.pre_aggregation().to_owned();
                if value != "auto" {
                    options.written.push(("pre_aggregation".to_owned(), value.clone()));
                }
                value
            }
        };
        pre_aggregation_of(&value)
    }

    /// Runs DROP DEPLOYMENT.
    pub(crate) fn drop_deployment(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let command = CatalogCommand::DropDeployment { name: self.qualified(name) };
        let tolerated = if_exists.then_some(code::UNDEFINED_OBJECT);
        outcome(self.database.commit(&command), tolerated, name, "DROP DEPLOYMENT")
    }

    /// Runs SHOW DEPLOYMENTS: those of the current database.
    pub(crate) fn show_deployments(&self) -> Result<Output> {
        let objects = self.database.objects();
        let found = objects.databases().get(&self.current_database());
        let deployments = found.into_iter().flat_map(|found| found.deployments.values());
        let is_seen = |found: &&Arc<Deployment>| {
            let QualifiedName { database, name } = found.name();
            self.caller().sees_deployment(&objects, database, name)
        };
        let rows: Vec<_> = deployments
            .filter(is_seen)
            .map(|found| {
                let QualifiedName { database, name } = found.name();
                [database, name, &found.sql].map(|text| Some(text.clone())).to_vec()
            })
            .collect();
        Output::of_texts(&["database", "deployment", "sql"], &rows)
    }

    /// Runs SHOW DEPLOYMENT: the query, the columns of the request row and of the answer, the
    /// settings, and a script that makes the same deployment.
    pub(crate) fn show_deployment(&self, name: &ObjectName) -> Result<Output> {
        let QualifiedName { database, name: plain } = self.qualified(name);
        let found = self.find_deployment(&format!("{database}.{plain}"));
        let found = found.map_err(|error| Box::new(at_name(*error, name)))?.info();
        let script = script(&found);
        let columns = [
            ("database", found.database),
            ("deployment", found.name),
            ("sql", found.sql),
            ("input", column_list(&found.input)),
            ("output", column_list(&found.output)),
            ("compatibility", found.compatibility.to_owned()),
            ("time_zone", found.time_zone),
            ("options", option_list(&found.options)),
            ("current_database", found.current_database),
            ("script", script),
        ];
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let row = columns.into_iter().map(|(_, text)| Some(text)).collect();
        Output::of_texts(&names, &[row])
    }
}

/// Returns what a value of the variable `pre_aggregation` means.
pub(crate) fn pre_aggregation_of(value: &str) -> PreAggregation {
    match value {
        "off" => PreAggregation::Off,
        "always" => PreAggregation::Always,
        _ => PreAggregation::Auto,
    }
}

/// Writes columns as CREATE TABLE takes them.
fn column_list(columns: &[(String, DataType)]) -> String {
    let columns: Vec<String> =
        columns.iter().map(|(name, data_type)| format!("`{name}` {data_type}")).collect();
    columns.join(", ")
}

/// Writes options as OPTIONS(…) takes them.
fn option_list(options: &[(String, String)]) -> String {
    let option = |(name, value): &(String, String)| {
        // A duration or a number is written without quotes.
        let is_bare = name.ends_with("_bias")
            && value.starts_with(|c: char| c.is_ascii_digit())
            && value.chars().all(|c| c.is_ascii_alphanumeric());
        if is_bare { format!("{name}={value}") } else { format!("{name}={}", quoted(value)) }
    };
    options.iter().map(option).collect::<Vec<_>>().join(", ")
}

/// Writes a text as a constant of SQL, whatever characters it has.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Writes a script that makes the same deployment.
fn script(found: &DeploymentInfo) -> String {
    let (database, name) = (found.database.clone(), found.name.clone());
    format!(
        "USE `{}`; SET compatibility = '{}'; SET time_zone = '{}'; {};",
        found.current_database.replace('`', "``"),
        found.compatibility,
        found.time_zone,
        deploy_script(&QualifiedName { database, name }, &found.options, &found.sql)
    )
}

/// Writes the DEPLOY of a query.
pub(crate) fn deploy_script(
    name: &QualifiedName,
    options: &[(String, String)],
    sql: &str,
) -> String {
    let options = match option_list(options) {
        none if none.is_empty() => none,
        options => format!("OPTIONS({options}) "),
    };
    format!("DEPLOY {} {options}{sql}", name.script())
}
