//! What each statement needs: privileges on objects, and files of the server.
//!
//! The list has every statement, so that a new one does not compile until it says what it needs. The
//! tables that a query reads are not here: they are known when its names are looked up.

use lockstep_diagnostic::Span;
use lockstep_sql::ast::{
    AlterTableAction, ConnectorStatement, CreateLike, Ident, ObjectName, OptionItem, OptionValue,
    Privileges, Query, Show, Statement, StreamStatement, UserDefinition,
};

use super::Requirement;
use crate::{
    Session,
    options::word,
    user::{Privilege, Securable},
};

/// What a call needs.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    pub(crate) requirements: Vec<Requirement>,
    /// Files of the server that it reads or writes.
    pub(crate) files: Vec<NeededFile>,
    /// The privileges that a GRANT or REVOKE is about.
    pub(crate) grants: Option<Privileges>,
}

/// A file that a statement names.
#[derive(Debug)]
pub(crate) struct NeededFile {
    pub(crate) path: String,
    pub(crate) span: Span,
}

impl Needs {
    /// Needs one privilege.
    pub(crate) fn one(privilege: Privilege, object: Securable, span: Span) -> Self {
        Self::of(vec![Requirement::new(privilege, object).at(span)])
    }

    fn on_database(privilege: Privilege, name: &Ident) -> Self {
        Self::one(privilege, Securable::Database(name.text.clone()), name.span)
    }

    fn any(object: Securable, span: Span) -> Self {
        Self::of(vec![Requirement::any(object).at(span)])
    }

    /// Needs all of these.
    pub(crate) fn of(requirements: Vec<Requirement>) -> Self {
        Self { requirements, ..Self::default() }
    }

    fn admin() -> Self {
        Self::of(vec![Requirement::new(Privilege::Admin, Securable::Everything)])
    }

    /// Needs DROP on the same object, too, where a statement replaces it.
    fn with_drop_if(mut self, replaces: bool) -> Self {
        debug_assert_eq!(self.requirements.len(), 1, "one object is replaced");
        if replaces && let [created] = self.requirements.as_slice() {
            let dropped = Requirement::new(Privilege::Drop, created.object.clone());
            self.requirements.push(Requirement { span: created.span, ..dropped });
        }
        self
    }

    fn with_file(mut self, path: &str, span: Span) -> Self {
        self.files.push(NeededFile { path: path.to_owned(), span });
        self
    }

    /// Adds the file that CREATE TABLE … LIKE reads, if there is one.
    fn with_like(self, like: Option<&CreateLike>) -> Self {
        match like {
            Some(like) => self.with_file(&like.path, like.span),
            None => self,
        }
    }
}

impl Session {
    /// Returns what a statement needs.
    pub(crate) fn needs_of(&self, statement: &Statement) -> Needs {
        let table = |name: &ObjectName| Securable::Table(self.qualified(name));
        let deployment = |name: &ObjectName| Securable::Deployment(self.qualified(name));
        let on_table =
            |privilege, name: &ObjectName| Needs::one(privilege, table(name), name.name.span);
        let on_deployment =
            |privilege, name: &ObjectName| Needs::one(privilege, deployment(name), name.name.span);
        let created = |name: &ObjectName, or_replace: bool| {
            on_table(Privilege::Create, name).with_drop_if(or_replace)
        };
        let seen = |name: &ObjectName| Needs::any(table(name), name.name.span);
        let on_deployment_of = |name: &ObjectName, or_replace: bool| {
            on_deployment(Privilege::Deploy, name).with_drop_if(or_replace)
        };
        match statement {
            Statement::Query(query) => needs_of_query(query),
            // Writes no file.
            Statement::Explain { .. } | Statement::Exit => Needs::default(),
            Statement::CreateDatabase { name, .. } => Needs::on_database(Privilege::Create, name),
            Statement::DropDatabase { name, .. } => Needs::on_database(Privilege::Drop, name),
            Statement::Use(name) => Needs::any(Securable::Database(name.text.clone()), name.span),
            Statement::CreateTable(create) => {
                created(&create.name, create.or_replace).with_like(create.like.as_ref())
            }
            Statement::DropTable { names, .. } => self.needs_on_tables(Privilege::Drop, names),
            Statement::DropView { name, .. } => on_table(Privilege::Drop, name),
            Statement::CreateView(create) => created(&create.name, create.or_replace),
            Statement::Stream(statement) => self.needs_of_stream(statement),
            Statement::Connector(statement) => self.needs_of_connector(statement),
            Statement::CreateIndex(create) => on_table(Privilege::Index, &create.table),
            Statement::DropIndex { table, .. } => on_table(Privilege::Index, table),
            Statement::Insert(insert) => on_table(Privilege::Insert, &insert.table),
            Statement::Delete { table, .. } => on_table(Privilege::Delete, table),
            Statement::Truncate(tables) => self.needs_on_tables(Privilege::Truncate, tables),
            Statement::LoadData(load) => {
                on_table(Privilege::Insert, &load.table).with_file(&load.path, load.path_span)
            }
            Statement::AlterTable { table, actions } => {
                with_files_of(on_table(Privilege::Alter, table), actions)
            }
            Statement::Deploy(deploy) => on_deployment_of(&deploy.name, deploy.or_replace),
            Statement::CreateProcedure(new) => on_deployment_of(&new.name, new.or_replace),
            Statement::DropDeployment { name, .. } | Statement::DropProcedure { name, .. } => {
                on_deployment(Privilege::Drop, name)
            }
            Statement::Call { name, .. } | Statement::VerifyDeployment { name, .. } => {
                on_deployment(Privilege::Execute, name)
            }
            Statement::Describe(name) => seen(name),
            Statement::Estimate(estimate) => seen(&estimate.table),
            Statement::Show(show) => self.needs_of_show(show),
            Statement::Set { global: false, .. } => Needs::default(),
            Statement::CreateUser(_)
            | Statement::AlterUser(_)
            | Statement::DropUser { .. }
            | Statement::CreateToken(_)
            | Statement::DropToken { .. }
            | Statement::Privileges(_)
            | Statement::Kill { .. }
            | Statement::CreateRole { .. }
            | Statement::DropRole { .. }
            | Statement::Membership(_) => self.needs_of_access(statement),
            Statement::StopJob(id) if self.owns_job(id) => Needs::default(),
            Statement::StopJob(_)
            | Statement::CreateFunction(_)
            | Statement::DropFunction { .. }
            | Statement::Set { global: true, .. }
            | Statement::DeleteJob(_)
            | Statement::Checkpoint => Needs::admin(),
            Statement::Backup { path, span } => Needs::admin().with_file(path, *span),
        }
    }

    fn needs_of_stream(&self, statement: &StreamStatement) -> Needs {
        let (privilege, name) = match statement {
            StreamStatement::Explain(name) => {
                return Needs::any(Securable::Table(self.qualified(name)), name.name.span);
            }
            StreamStatement::Create(create) => (Privilege::Create, &create.name),
            StreamStatement::Drop { name, .. } => (Privilege::Drop, name),
            StreamStatement::Subscribe { name, .. } => (Privilege::Select, name),
            StreamStatement::Alter { name, .. }
            | StreamStatement::Start(name)
            | StreamStatement::Stop(name) => (Privilege::Alter, name),
        };
        Needs::one(privilege, Securable::Table(self.qualified(name)), name.name.span)
    }

    fn needs_of_connector(&self, statement: &ConnectorStatement) -> Needs {
        let (privilege, name) = match statement {
            // The server connects to another machine, with files and passwords that the statement names.
            ConnectorStatement::Create(create) => return files_of_options(&create.options),
            ConnectorStatement::Alter { options, .. } => return files_of_options(options),
            ConnectorStatement::Drop { name, .. } => (Privilege::Drop, name),
            ConnectorStatement::Start(_, name) | ConnectorStatement::Stop(_, name) => {
                (Privilege::Alter, name)
            }
        };
        Needs::one(privilege, Securable::Table(self.qualified(name)), name.name.span)
    }

    fn needs_on_tables(&self, privilege: Privilege, names: &[ObjectName]) -> Needs {
        let of = |name: &ObjectName| {
            Requirement::new(privilege, Securable::Table(self.qualified(name))).at(name.name.span)
        };
        Needs::of(names.iter().map(of).collect())
    }

    /// Returns what a statement about users, roles, tokens, grants or sessions needs.
    fn needs_of_access(&self, statement: &Statement) -> Needs {
        match statement {
            Statement::CreateUser(_) => {
                Needs::of(vec![Requirement::new(Privilege::CreateUser, Securable::Everything)])
            }
            Statement::AlterUser(user) => self.needs_of_alter_user(user),
            Statement::DropUser { name, .. } => self.needs_of_user(Privilege::DropUser, name),
            Statement::CreateToken(token) => self.needs_of_own(token.user.as_ref()),
            Statement::DropToken { user, .. } => self.needs_of_own(user.as_ref()),
            Statement::Privileges(change) => {
                Needs { grants: Some(change.clone()), ..Needs::default() }
            }
            Statement::Kill { session, .. } if self.owns_session(*session) => Needs::default(),
            _ => Needs::admin(),
        }
    }

    fn needs_of_show(&self, show: &Show) -> Needs {
        match show {
            Show::CreateTable(name)
            | Show::CreateView(name)
            | Show::CreateStream(name)
            | Show::CreateConnector(_, name)
            | Show::Indexes(name) => {
                Needs::any(Securable::Table(self.qualified(name)), name.name.span)
            }
            Show::Deployment(name) | Show::CreateProcedure(name) => {
                Needs::any(Securable::Deployment(self.qualified(name)), name.name.span)
            }
            Show::Grants(user) | Show::Tokens(user) => match user {
                Some(user) if !self.caller().is_user(&user.text) => Needs::admin(),
                _ => Needs::default(),
            },
            Show::Memory
            | Show::Jobs { .. }
            | Show::Job(_)
            | Show::JobLog(_)
            | Show::Users
            | Show::Roles => Needs::admin(),
            // The lists have what the caller may see.
            Show::Databases
            | Show::Tables
            | Show::Views
            | Show::Streams
            | Show::Connectors(_)
            | Show::TableStatus(_)
            | Show::Deployments
            | Show::Procedures
            | Show::Functions
            | Show::Variables
            | Show::GlobalVariables
            | Show::Components
            | Show::CurrentUser => Needs::default(),
        }
    }

    /// A user may change its own password, but not with a token, which expires.
    fn needs_of_alter_user(&self, user: &UserDefinition) -> Needs {
        let sets_password = user.options.iter().all(|option| {
            option.key.text == "password" && matches!(option.value, OptionValue::Literal(_))
        });
        if self.caller().is_user(&user.name.text) && self.has_logged_in() && sets_password {
            return Needs::default();
        }
        self.needs_of_user(Privilege::AlterUser, &user.name)
    }

    /// A user may have tokens made and removed, but not with a token, which expires.
    fn needs_of_own(&self, user: Option<&Ident>) -> Needs {
        match user {
            Some(user) if !self.caller().is_user(&user.text) => {
                self.needs_of_user(Privilege::AlterUser, user)
            }
            _ if self.has_logged_in() => Needs::default(),
            _ => Needs::admin(),
        }
    }

    /// A change of a user who has ADMIN on anything, and would give it to the caller, needs ADMIN.
    fn needs_of_user(&self, privilege: Privilege, user: &Ident) -> Needs {
        let objects = self.database.objects();
        let users = objects.users();
        let privilege = if users.has_admin(&user.text) { Privilege::Admin } else { privilege };
        Needs::one(privilege, Securable::Everything, user.span)
    }

    fn has_logged_in(&self) -> bool {
        self.caller().user.as_ref().is_none_or(|user| user.token.is_none())
    }
}

/// Needs ADMIN, and the files that the options of a source or a sink name.
fn files_of_options(options: &[OptionItem]) -> Needs {
    const FILES: [&str; 4] = ["tls_ca", "tls_certificate", "tls_key", "path"];
    let files = options.iter().filter(|item| FILES.contains(&item.key.text.as_str()));
    files.fold(Needs::admin(), |needs, item| match word(&item.value) {
        Some(path) => needs.with_file(folder_of_pattern(path), item.span),
        None => needs,
    })
}

/// Returns the folder of a pattern of names, and every other path as it is. The files of the folder are those that the
/// user may open.
fn folder_of_pattern(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((folder, name)) if name.contains(['*', '?']) => folder,
        _ => path,
    }
}

/// Needs the files whose paths ALTER TABLE adds, too.
fn with_files_of(needs: Needs, actions: &[AlterTableAction]) -> Needs {
    actions.iter().fold(needs, |needs, action| match action {
        AlterTableAction::OfflinePath { add: true, path, span } => needs.with_file(path, *span),
        _ => needs,
    })
}

fn needs_of_query(query: &Query) -> Needs {
    match &query.into_outfile {
        Some(outfile) => Needs::default().with_file(&outfile.path, outfile.span),
        None => Needs::default(),
    }
}
