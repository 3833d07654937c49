//! Deployments: named, compiled queries that serve requests.
//!
//! `session` calls it for DEPLOY, DROP DEPLOYMENT and SHOW DEPLOYMENT. *Life of a DEPLOY*: read the
//! options, bind the query, check the long windows, compile the program (which builds the indexes
//! that are missing), make the indexes keep rows for long enough, say what may go wrong, and only
//! then name it: when the name was taken or a table dropped meanwhile, the catalog refuses it.

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
use lockstep_table::IndexHold;

use crate::{
    DeploymentInfo, Output, PreparedRequest, Session,
    catalog::{CatalogCommand, Definition, ObjectKind, QualifiedName, TableReference},
    database::Tables,
    lint,
    session::{at_name, object_name, outcome},
    show,
};

/// A named, compiled query. Immutable.
#[derive(Debug)]
pub(crate) struct Deployment {
    pub(crate) definition: Arc<Definition>,
    /// The query's text as it was written.
    pub(crate) sql: String,
    pub(crate) query: BoundQuery,
    pub(crate) request: Arc<PreparedRequest>,
    /// The tables it reads, which cannot be dropped while it exists.
    pub(crate) tables: Vec<TableReference>,
    /// The session's settings at DEPLOY, which are part of what the query means.
    pub(crate) settings: Settings,
    /// The session's database at DEPLOY, in which the names of the query were looked up.
    pub(crate) current_database: String,
    /// OPTIONS as written, as (name, value).
    pub(crate) options: Vec<(String, String)>,
    /// What it needs of its tables beside what its program holds: rows that are kept for long
    /// enough.
    #[expect(dead_code, reason = "held, never read: what it holds goes when it is dropped")]
    pub(crate) holds: Vec<IndexHold>,
}

impl Session {
    pub(crate) fn deploy(&self, deploy: &Deploy, script: &str) -> Result<Output> {
        let name = self.qualified(&deploy.name);
        let tolerated = deploy.if_not_exists.then_some(code::DUPLICATE_OBJECT);
        let free = self.database.objects().check_free(&name, ObjectKind::Deployment);
        if free.is_err() {
            return outcome(free, tolerated, &deploy.name, "DEPLOY");
        }
        let seen = self.database.objects().epoch();
        let (deployment, warnings) = self.compile_deployment(name, deploy, script)?;
        let command = CatalogCommand::CreateDeployment { deployment: Arc::new(deployment), seen };
        let committed = self.database.commit(command);
        Ok(Output { warnings, ..outcome(committed, tolerated, &deploy.name, "DEPLOY")? })
    }

    /// Makes the deployment; gives the warnings, too.
    fn compile_deployment(
        &self,
        name: QualifiedName,
        deploy: &Deploy,
        script: &str,
    ) -> Result<(Deployment, Vec<Diagnostic>)> {
        let (options, mut warnings) = options::read(&deploy.options)?;
        let query = self.bind(&deploy.query)?;
        long_window::check(&options.long_windows, &query)?;
        let entries = self.database.entries_of(&query.plan)?;
        let tables = Tables::of(&entries).owned_by(&name);
        let definition = Definition::new(ObjectKind::Deployment, name);
        let request = PreparedRequest::compile_to_stay(&query, &tables, &definition)?;
        let wanted = index::wanted(&query.plan, &options);
        let provided = index::provide(&wanted, &options, &entries, tables.owner())?;
        warnings.extend(provided.warnings.into_iter().map(|w| w.at(deploy.name.name.span)));
        warnings.extend(lint::check(&query, &tables, lint::Purpose::Serving));
        let deployment = Deployment {
            definition,
            sql: query_text(script, deploy.query_span),
            request: Arc::new(request),
            tables: references(&query.plan),
            settings: self.settings(),
            current_database: self.current_database(),
            options: options.written,
            holds: provided.holds,
            query,
        };
        Ok((deployment, warnings))
    }

    pub(crate) fn drop_deployment(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let command = CatalogCommand::DropDeployment { name: self.qualified(name) };
        let tolerated = if_exists.then_some(code::UNDEFINED_OBJECT);
        outcome(self.database.commit(command), tolerated, name, "DROP DEPLOYMENT")
    }

    /// A deployment by its text (`name` or `database.name`).
    pub(crate) fn find_deployment(&self, name: &str) -> Result<Arc<Deployment>> {
        let name = self.qualified(&object_name(name.trim()));
        let objects = self.database.objects();
        let found = objects.databases().get(&name.database);
        match found.and_then(|found| found.deployments.get(&name.name)) {
            Some(found) => Ok(Arc::clone(found)),
            None => objects.no_deployment(&name).err(),
        }
    }

    /// SHOW DEPLOYMENTS: those of the current database.
    pub(crate) fn show_deployments(&self) -> Result<Output> {
        let objects = self.database.objects();
        let found = objects.databases().get(&self.current_database());
        let deployments = found.into_iter().flat_map(|found| found.deployments.values());
        let rows: Vec<_> = deployments
            .map(|found| {
                let QualifiedName { database, name } = found.name();
                [database, name, &found.sql].map(|text| Some(text.clone())).to_vec()
            })
            .collect();
        show::texts(&["database", "deployment", "sql"], &rows)
    }

    /// SHOW DEPLOYMENT.
    pub(crate) fn show_deployment(&self, name: &ObjectName) -> Result<Output> {
        let QualifiedName { database, name: plain } = self.qualified(name);
        let found = self.find_deployment(&format!("{database}.{plain}"));
        show::deployment(&found.map_err(|error| Box::new(at_name(*error, name)))?.info())
    }

    /// A deployment (`name` or `database.name`) as a value.
    pub fn deployment(&self, name: &str) -> Result<DeploymentInfo> {
        self.find_deployment(name).map(|found| found.info())
    }
}

impl Deployment {
    pub(crate) fn name(&self) -> &QualifiedName {
        self.definition.name()
    }

    fn info(&self) -> DeploymentInfo {
        DeploymentInfo {
            name: self.name().name.clone(),
            database: self.name().database.clone(),
            sql: self.sql.clone(),
            input: self.request.input().to_vec(),
            output: self.request.output().to_vec(),
            compatibility: match self.settings.compatibility {
                Compatibility::Standard => "standard",
                Compatibility::OpenMldb => "openmldb",
            },
            time_zone: self.settings.time_zone.to_string(),
            current_database: self.current_database.clone(),
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

/// The same, as what was made from the plan names them.
pub(crate) fn references(plan: &LogicalPlan) -> Vec<TableReference> {
    tables_of(plan).iter().map(|table| TableReference::of(table)).collect()
}

/// The text of the query inside the script.
pub(crate) fn query_text(script: &str, span: Span) -> String {
    script.get(span.start..span.end).unwrap_or_default().trim().trim_end_matches(';').to_owned()
}
