//! Deployments and procedures: the compiled queries of the catalog.
//!
//! DEPLOY and CREATE PROCEDURE make them (`statement/deploy.rs`, `statement/procedure.rs`),
//! requests run them. Both are immutable; a definition that replaces one is another object.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::LogicalPlan,
};
use lockstep_diagnostic::{Result, Span};
use lockstep_function::{Compatibility, Settings};
use lockstep_plan::{BoundQuery, CatalogTable, DeclaredIndex, stored_tables};
use lockstep_row::TableSchema;
use lockstep_table::IndexHold;
use serde::{Deserialize, Serialize};

use crate::{
    DeploymentInfo, Output, PreparedRequest, ProcedureInfo, Session,
    access::{Needs, OwnedReads, Owner, Requirement},
    catalog::{CatalogRecord, Definition, DropSignal, QualifiedName, TableReference},
    entrance::{CallDescription, no_plan},
    session::{object_name, retried},
    user::{Privilege, Securable},
    view::View,
};

/// A named, compiled query that serves requests.
#[derive(Debug)]
pub(crate) struct Deployment {
    pub(crate) definition: Arc<Definition>,
    /// The query as it was written.
    pub(crate) sql: String,
    /// The query that requests are answered with: without the labels.
    pub(crate) query: BoundQuery,
    /// The query of the training set.
    pub(crate) training: BoundQuery,
    pub(crate) request: Arc<PreparedRequest>,
    /// The tables that it reads, which cannot be dropped while it exists.
    pub(crate) tables: Vec<TableReference>,
    /// The views that it reads, which cannot be dropped or replaced while it exists.
    pub(crate) views: Vec<Arc<View>>,
    /// The table to which answers are logged, which cannot be dropped while it exists.
    pub(crate) answers: Option<TableReference>,
    /// The session's settings at DEPLOY, on which the query's meaning depends.
    pub(crate) settings: Settings,
    /// The session's database at DEPLOY, in which the names of the query were looked up.
    pub(crate) current_database: String,
    /// The declared indexes of its tables when it was bound.
    pub(crate) indexes: Vec<BoundIndexes>,
    /// OPTIONS as written, as (name, value).
    pub(crate) options: Vec<(String, String)>,
    /// The user with whose privileges it reads, if it has one.
    pub(crate) owner: Option<Owner>,
    /// The holds by which indexes keep rows as far back as the query reads.
    #[expect(dead_code, reason = "never read: dropping it releases the holds")]
    pub(crate) holds: Vec<IndexHold>,
    /// The last field: fields are dropped in their order.
    pub(crate) dropped: DropSignal,
}

/// A query whose request row is declared with it, called with CALL.
#[derive(Debug)]
pub(crate) struct Procedure {
    pub(crate) definition: Arc<Definition>,
    /// The statement that created it.
    pub(crate) sql: String,
    pub(crate) request: Arc<PreparedRequest>,
    /// The tables that it reads, which cannot be dropped while it exists.
    pub(crate) tables: Vec<TableReference>,
    /// The views that it reads, which cannot be dropped or replaced while it exists.
    pub(crate) views: Vec<Arc<View>>,
    /// The session's settings at CREATE PROCEDURE.
    pub(crate) settings: Settings,
    /// The session's database at CREATE PROCEDURE.
    pub(crate) current_database: String,
    /// The declared indexes of its tables when it was bound.
    pub(crate) indexes: Vec<BoundIndexes>,
    /// Which columns of the request row are CONST: equal for all rows of a batch of requests.
    pub(crate) common_input: Vec<bool>,
    /// Which columns of the answer are copies of such columns.
    pub(crate) common_output: Vec<bool>,
    /// The user with whose privileges it reads, if it has one.
    pub(crate) owner: Option<Owner>,
    /// The last field: fields are dropped in their order.
    pub(crate) dropped: DropSignal,
}

/// A statement's text with everything in its session on which its meaning depends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuerySource {
    pub(crate) sql: String,
    pub(crate) current_database: String,
    pub(crate) compatibility: String,
    pub(crate) time_zone: String,
    /// The declared indexes of the tables that it reads. Records of earlier versions have none: then those
    /// count that there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) indexes: Vec<BoundIndexes>,
    /// The user with whose privileges it reads; `None`: it reads everything, as records of earlier versions
    /// do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<Owner>,
}

/// The declared indexes of a table when a query over it was bound: they order the rows of a LAST JOIN
/// without ORDER BY.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BoundIndexes {
    /// The id of the table.
    pub(crate) table: u64,
    indexes: Vec<BoundIndex>,
}

/// A declared index by the names of its columns, whose positions may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct BoundIndex {
    keys: Vec<String>,
    event_time: Option<String>,
}

impl BoundIndexes {
    /// Returns them for the table that takes the place of another one.
    pub(crate) fn moved(&self, from: u64, to: u64) -> Self {
        let table = if self.table == from { to } else { self.table };
        Self { table, indexes: self.indexes.clone() }
    }

    /// Returns those that a table has.
    pub(crate) fn of(table: &CatalogTable) -> Self {
        let name = |column: &usize| table.schema.columns[*column].name.clone();
        let declared = table.schema.indexes.iter().filter(|index| index.declared);
        let indexes = declared.map(|index| BoundIndex {
            keys: index.keys.iter().map(name).collect(),
            event_time: index.event_time.as_ref().map(name),
        });
        Self { table: table.id, indexes: indexes.collect() }
    }

    /// Returns them by the positions that their columns have now, without those whose columns are gone.
    pub(crate) fn declared(&self, schema: &TableSchema) -> Vec<DeclaredIndex> {
        let position =
            |name: &String| schema.columns.iter().position(|column| column.name == *name);
        let index = |index: &BoundIndex| {
            let keys = index.keys.iter().map(position).collect::<Option<Vec<usize>>>()?;
            let event_time = match &index.event_time {
                Some(name) => Some(position(name)?),
                None => None,
            };
            Some(DeclaredIndex { keys, event_time })
        };
        self.indexes.iter().filter_map(index).collect()
    }
}

impl QuerySource {
    /// Makes the source of a statement of a session with these settings.
    pub(crate) fn new(sql: &str, current_database: &str, settings: Settings) -> Self {
        Self {
            sql: sql.to_owned(),
            current_database: current_database.to_owned(),
            compatibility: compatibility_name(settings).to_owned(),
            time_zone: settings.time_zone.to_string(),
            indexes: Vec::new(),
            owner: None,
        }
    }

    /// Returns the source of an object with an owner.
    pub(crate) fn owned_by(self, owned: Option<&OwnedReads>) -> Self {
        Self { owner: owned.map(|owned| owned.owner().clone()), ..self }
    }
}

/// Returns the value of the variable `compatibility`.
pub(crate) fn compatibility_name(settings: Settings) -> &'static str {
    match settings.compatibility {
        Compatibility::Standard => "standard",
        Compatibility::OpenMldb => "openmldb",
    }
}

impl Session {
    /// Returns a deployment, named `deployment` or `database.deployment`.
    pub fn deployment(&self, name: &str) -> Result<DeploymentInfo> {
        let object = Securable::Deployment(self.qualified(&object_name(name.trim())));
        let operation = || CallDescription::look_at(name, object);
        self.enter(operation, || self.find_deployment(name).map(|found| found.info()))
    }

    /// Returns a procedure, named `procedure` or `database.procedure`.
    pub fn procedure(&self, name: &str) -> Result<ProcedureInfo> {
        let name = object_name(name.trim());
        let object = Securable::Deployment(self.qualified(&name));
        let operation = || CallDescription::look_at(&name.name.text, object);
        self.enter(operation, || self.find_procedure(&name).map(|found| found.info()))
    }

    /// Answers request rows with a procedure, as [`Self::request`] does with a deployment.
    pub fn request_procedure(&self, name: &str, rows: &[RecordBatch]) -> Result<Output> {
        let (name, conversion) = (object_name(name.trim()), self.conversion());
        let object = Securable::Deployment(self.qualified(&name));
        let needs = Needs::of(vec![Requirement::new(Privilege::Execute, object)]);
        let text = &name.name.text;
        let operation = || CallDescription {
            action: "REQUEST",
            text,
            needs,
            is_audited: false,
            plan: &no_plan,
        };
        let answer = || {
            let request = self.find_procedure(&name)?.request.for_session(self)?;
            request.answer_batches(rows, conversion)
        };
        self.enter(operation, || retried(answer))
    }

    /// Returns the request of a deployment, if it exists and the catalog is not being changed.
    pub(crate) fn try_find_deployment(&self, name: &str) -> Option<Arc<PreparedRequest>> {
        let name = self.qualified(&object_name(name.trim()));
        let objects = self.database.try_objects()?;
        let found = objects.databases().get(&name.database)?.deployments.get(&name.name)?;
        Some(Arc::clone(&found.request))
    }

    /// Finds a deployment by its name, which may be qualified.
    pub(crate) fn find_deployment(&self, name: &str) -> Result<Arc<Deployment>> {
        let name = self.qualified(&object_name(name.trim()));
        let objects = self.database.objects();
        let found = objects.databases().get(&name.database);
        match found.and_then(|found| found.deployments.get(&name.name)) {
            Some(found) => Ok(Arc::clone(found)),
            None => objects.no_deployment(&name).err(),
        }
    }
}

impl Deployment {
    pub(crate) fn name(&self) -> &QualifiedName {
        self.definition.name()
    }

    /// Returns whether the training set has columns that answers lack.
    pub(crate) fn has_labels(&self) -> bool {
        self.training.columns.len() > self.query.columns.len()
    }

    /// Describes the deployment as the log has it.
    pub(crate) fn record(&self) -> CatalogRecord {
        CatalogRecord::CreateDeployment {
            name: self.name().clone(),
            source: self.source(),
            options: self.options.clone(),
        }
    }

    /// Returns its query with everything on which its meaning depends.
    pub(crate) fn source(&self) -> QuerySource {
        let indexes = self.indexes.clone();
        QuerySource {
            indexes,
            owner: self.owner.clone(),
            ..QuerySource::new(&self.sql, &self.current_database, self.settings)
        }
    }

    /// Describes the deployment.
    pub(crate) fn info(&self) -> DeploymentInfo {
        DeploymentInfo {
            name: self.name().name.clone(),
            database: self.name().database.clone(),
            sql: self.sql.clone(),
            input: self.request.input().to_vec(),
            reads: self.request.reads().to_vec(),
            output: self.request.output().to_vec(),
            compatibility: compatibility_name(self.settings),
            time_zone: self.settings.time_zone.to_string(),
            current_database: self.current_database.clone(),
            options: self.options.clone(),
            tables: table_names(&self.tables),
        }
    }
}

impl Procedure {
    /// Describes the procedure.
    pub(crate) fn info(&self) -> ProcedureInfo {
        ProcedureInfo {
            name: self.name().name.clone(),
            database: self.name().database.clone(),
            sql: self.sql.clone(),
            input: self.request.input().to_vec(),
            output: self.request.output().to_vec(),
            common_input: self.common_input.clone(),
            common_output: self.common_output.clone(),
            tables: table_names(&self.tables),
        }
    }

    /// Describes the procedure as the log has it.
    pub(crate) fn record(&self) -> CatalogRecord {
        CatalogRecord::CreateProcedure {
            name: self.name().clone(),
            source: QuerySource {
                indexes: self.indexes.clone(),
                owner: self.owner.clone(),
                ..QuerySource::new(&self.sql, &self.current_database, self.settings)
            },
        }
    }

    pub(crate) fn name(&self) -> &QualifiedName {
        self.definition.name()
    }
}

/// Returns the database and the name of each table.
fn table_names(tables: &[TableReference]) -> Vec<(String, String)> {
    let name = |table: &TableReference| {
        let QualifiedName { database, name } = &table.name;
        (database.clone(), name.clone())
    };
    tables.iter().map(name).collect()
}

/// Returns a table of a plan whose rows are not stored.
pub(crate) fn source_of(plan: &LogicalPlan) -> Option<CatalogTable> {
    let mut found = None;
    let visit = plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && let Some(table) = CatalogTable::of(scan.source.as_ref())
            && table.source.is_some()
        {
            found = Some(table.clone());
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    visit.expect("the visitor never fails");
    found
}

/// Returns references to the stored tables that a plan reads.
pub(crate) fn references(plan: &LogicalPlan) -> Vec<TableReference> {
    stored_tables(plan).iter().map(|table| TableReference::of(table)).collect()
}

/// Returns the part of a script at `span`, without its semicolon.
pub(crate) fn query_text(script: &str, span: Span) -> String {
    debug_assert!(script.get(span.start..span.end).is_some(), "the span is of the script");
    script.get(span.start..span.end).unwrap_or_default().trim().trim_end_matches(';').to_owned()
}
