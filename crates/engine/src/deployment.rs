//! Deployments: named, compiled queries that serve requests.
//!
//! `session` calls it for DEPLOY, DROP DEPLOYMENT and SHOW DEPLOYMENT. *Life of a DEPLOY*: read the
//! options, bind the query, check the long windows, compile the program (which builds the indexes
//! that are missing), make the indexes keep rows for long enough, say what may go wrong, and only
//! then name it.

mod index;
mod long_window;
mod options;

use std::sync::Arc;

use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::LogicalPlan,
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{Compatibility, Settings};
use lockstep_plan::{BoundQuery, CatalogTable};
use lockstep_sql::ast::{Deploy, ObjectName};

use crate::{
    DeploymentInfo, Output, PreparedRequest, Session, lint,
    session::{done, no_database, object_name},
    show,
};

/// A named, compiled query. Immutable.
#[derive(Debug)]
pub(crate) struct Deployment {
    pub(crate) name: String,
    pub(crate) database: String,
    /// The query's text as it was written.
    pub(crate) sql: String,
    pub(crate) query: BoundQuery,
    pub(crate) request: Arc<PreparedRequest>,
    /// The tables it reads, which cannot be dropped while it exists.
    pub(crate) table_ids: Vec<u64>,
    /// The session's settings at DEPLOY, which are part of what the query means.
    pub(crate) settings: Settings,
    /// OPTIONS as written, as (name, value).
    pub(crate) options: Vec<(String, String)>,
}

impl Session {
    pub(crate) fn deploy(&self, deploy: &Deploy, script: &str) -> Result<Output> {
        let current = self.current_database();
        let database = deploy.name.database.as_ref().map_or(&current, |d| &d.text).clone();
        let name = deploy.name.name.text.clone();
        {
            let objects = self.database.objects();
            let Some(found) = objects.databases.get(&database) else {
                let at = deploy.name.database.as_ref().unwrap_or(&deploy.name.name);
                return no_database(at, objects.databases.keys().map(String::as_str));
            };
            if found.deployments.contains_key(&name) {
                if deploy.if_not_exists {
                    return Ok(done("DEPLOY"));
                }
                let message = format!("deployment `{name}` exists already");
                let at = deploy.name.name.span;
                return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(at).err();
            }
        }
        let (options, mut warnings) = options::read(&deploy.options)?;
        let query = self.bind(&deploy.query)?;
        long_window::check(&options.long_windows, &query)?;
        let tables = self.database.tables();
        let request = PreparedRequest::compile_to_stay(&query, &tables)?;
        index::provide(&index::wanted(&query.plan, &options), &options, &tables);
        warnings.extend(lint::check(&query, &tables, lint::Purpose::Serving));
        let deployment = Deployment {
            sql: query_text(script, deploy.query_span),
            table_ids: tables_of(&query.plan).iter().map(|table| table.id).collect(),
            request: Arc::new(request),
            database: database.clone(),
            name: name.clone(),
            settings: self.settings(),
            options: options.written,
            query,
        };
        let mut objects = self.database.objects_mut();
        let Some(found) = objects.databases.get_mut(&database) else {
            return no_database(&deploy.name.name, std::iter::empty());
        };
        found.deployments.insert(name, Arc::new(deployment));
        Ok(Output { warnings, ..done("DEPLOY") })
    }

    pub(crate) fn drop_deployment(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let current = self.current_database();
        let database = name.database.as_ref().map_or(&current, |d| &d.text);
        let mut objects = self.database.objects_mut();
        let found = objects.databases.get_mut(database);
        let removed = found.and_then(|found| found.deployments.remove(&name.name.text));
        drop(objects);
        if removed.is_none() && !if_exists {
            return self.no_deployment(&name.name.text, Some(name.name.span));
        }
        Ok(done("DROP DEPLOYMENT"))
    }

    pub(crate) fn find_deployment(&self, name: &str) -> Option<Arc<Deployment>> {
        let name = object_name(name.trim());
        let current = self.current_database();
        let database = name.database.as_ref().map_or(&current, |d| &d.text);
        let objects = self.database.objects();
        objects.databases.get(database)?.deployments.get(&name.name.text).cloned()
    }

    pub(crate) fn no_deployment<T>(&self, name: &str, span: Option<Span>) -> Result<T> {
        let current = self.current_database();
        let objects = self.database.objects();
        let names = objects.databases.get(&current).into_iter().flat_map(|d| d.deployments.keys());
        let mut error = Diagnostic::new(
            code::UNDEFINED_OBJECT,
            format!("deployment `{name}` does not exist in database `{current}`"),
        );
        error.span = span;
        error.with_nearest(name, names.map(String::as_str)).err()
    }

    /// SHOW DEPLOYMENTS: those of the current database.
    pub(crate) fn show_deployments(&self) -> Result<Output> {
        let objects = self.database.objects();
        let found = objects.databases.get(&self.current_database());
        let rows: Vec<_> = found
            .into_iter()
            .flat_map(|found| found.deployments.values())
            .map(|d| vec![Some(d.database.clone()), Some(d.name.clone()), Some(d.sql.clone())])
            .collect();
        show::texts(&["database", "deployment", "sql"], &rows)
    }

    /// SHOW DEPLOYMENT.
    pub(crate) fn show_deployment(&self, name: &ObjectName) -> Result<Output> {
        let text = match &name.database {
            Some(database) => format!("{}.{}", database.text, name.name.text),
            None => name.name.text.clone(),
        };
        match self.find_deployment(&text) {
            Some(found) => show::deployment(&found.info()),
            None => self.no_deployment(&text, Some(name.name.span)),
        }
    }

    /// A deployment (`name` or `database.name`) as a value.
    pub fn deployment(&self, name: &str) -> Result<DeploymentInfo> {
        match self.find_deployment(name) {
            Some(found) => Ok(found.info()),
            None => self.no_deployment(name, None),
        }
    }
}

impl Deployment {
    fn info(&self) -> DeploymentInfo {
        DeploymentInfo {
            name: self.name.clone(),
            database: self.database.clone(),
            sql: self.sql.clone(),
            input: self.request.input().to_vec(),
            output: self.request.output().to_vec(),
            compatibility: match self.settings.compatibility {
                Compatibility::Standard => "standard",
                Compatibility::OpenMldb => "openmldb",
            },
            time_zone: self.settings.time_zone.name(),
            options: self.options.clone(),
        }
    }
}

/// The stored tables that a plan reads, unions and joins included.
pub(crate) fn tables_of(plan: &LogicalPlan) -> Vec<Arc<CatalogTable>> {
    let mut tables: Vec<Arc<CatalogTable>> = Vec::new();
    let visit = plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = CatalogTable::of(scan.source.as_ref())
            && tables.iter().all(|known| known.id != table.id)
        {
            tables.push(Arc::new(table.clone()));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visit.expect("the visitor never fails");
    tables
}

/// The text of the query inside the script.
pub(crate) fn query_text(script: &str, span: Span) -> String {
    script.get(span.start..span.end).unwrap_or_default().trim().trim_end_matches(';').to_owned()
}
