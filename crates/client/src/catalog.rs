//! What is there: columns, deployments; tables from a schema; verification; completions.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow_flight::Action;
use lockstep_diagnostic::Result;
use lockstep_protocol::{
    COMPLETE, CREATE_TABLE, ColumnList, DEPLOYMENT, DESCRIBE, DESCRIBE_TRAINING_SET,
    DeploymentMessage, Describe, ObjectRef, TABLE_COLUMNS, TableCreation, TrainingSet, VERIFY,
    Verify, VerifyEvent, VerifyResult, Words,
};
use prost::Message;

use crate::{
    RemoteClient,
    arrow_stream::{read_rows, write_rows},
    failure::{malformed, of_status},
    rows::parameter_bytes,
};

/// A function that is called with the fraction of the work that is done.
pub type VerifyListener<'p> = &'p mut dyn FnMut(f64);

/// Columns: their types, and their names, which may repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnSet {
    /// The types; the names are unique here.
    pub schema: SchemaRef,
    /// The names.
    pub names: Vec<String>,
    /// What each column is to a model, as a signature marks it, or an empty text; none where no column has
    /// a mark.
    pub roles: Vec<String>,
}

/// A deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientDeployment {
    /// Its name.
    pub name: String,
    /// Its database.
    pub database: String,
    /// The query as it was written.
    pub sql: String,
    /// The columns of a request row.
    pub input: ColumnSet,
    /// For each of them, whether an answer depends on it; the others may be left out.
    pub reads: Vec<bool>,
    /// The columns of an answer.
    pub output: ColumnSet,
    /// The value of `compatibility` when it was deployed.
    pub compatibility: String,
    /// The value of `time_zone` when it was deployed.
    pub time_zone: String,
}

impl ColumnSet {
    pub(crate) fn of(columns: ColumnList) -> Result<Self> {
        let (schema, _) = read_rows(&columns.schema)?;
        if schema.fields().len() != columns.names.len() {
            return Err(malformed("the numbers of columns and names differ"));
        }
        Ok(Self { schema, names: columns.names, roles: columns.roles })
    }
}

impl RemoteClient {
    /// Binds one query and returns the columns of its rows, without running it.
    pub fn describe(&self, sql: &str, parameters: Option<&RecordBatch>) -> Result<ColumnSet> {
        let parameters = parameters.map(parameter_bytes).transpose()?.unwrap_or_default();
        ColumnSet::of(self.action(DESCRIBE, &Describe { sql: sql.to_owned(), parameters })?)
    }

    /// Binds the training set of a deployment and returns the columns of its rows, without running it.
    pub fn describe_training_set(&self, set: &TrainingSet) -> Result<ColumnSet> {
        ColumnSet::of(self.action(DESCRIBE_TRAINING_SET, set)?)
    }

    /// Returns the columns of a table.
    pub fn table_columns(&self, table: &str) -> Result<ColumnSet> {
        ColumnSet::of(self.action(TABLE_COLUMNS, &named(table))?)
    }

    /// Creates a table with the columns of a schema.
    pub fn create_table(&self, table: &str, schema: &SchemaRef) -> Result<()> {
        let schema = write_rows(schema, &[])?;
        self.action::<()>(CREATE_TABLE, &TableCreation { table: table.to_owned(), schema })
    }

    /// Describes a deployment.
    pub fn deployment(&self, name: &str) -> Result<ClientDeployment> {
        let found: DeploymentMessage = self.action(DEPLOYMENT, &named(name))?;
        let input = ColumnSet::of(found.input.unwrap_or_default())?;
        let mut reads = found.reads;
        reads.resize(input.names.len(), true);
        Ok(ClientDeployment {
            name: found.name,
            database: found.database,
            sql: found.sql,
            input,
            reads,
            output: ColumnSet::of(found.output.unwrap_or_default())?,
            compatibility: found.compatibility,
            time_zone: found.time_zone,
        })
    }

    /// Returns the completions of a word.
    pub fn complete(&self, start: &str) -> Result<Vec<String>> {
        Ok(self.action::<Words>(COMPLETE, &named(start))?.words)
    }

    /// Replays stored rows through a deployment, and compares with batch mode. `progress` is called with
    /// the fraction that is done.
    pub fn verify(
        &self,
        deployment: &str,
        sample: Option<u64>,
        mut progress: Option<VerifyListener<'_>>,
    ) -> Result<VerifyResult> {
        let body = Verify { deployment: deployment.to_owned(), sample };
        let call = self.begin()?;
        let action = Action::new(VERIFY, body.encode_to_vec());
        let mut events = call.wait(call.action(action))?;
        loop {
            let event = call.wait(async {
                let event = events.message().await.map_err(|status| of_status(&status))?;
                let event = event.ok_or_else(|| malformed("unexpected end of the verification"))?;
                VerifyEvent::decode(event.body).map_err(malformed)
            })?;
            match (event.result, &mut progress) {
                (Some(result), _) => return Ok(result),
                (None, Some(progress)) => progress(event.fraction),
                (None, None) => {}
            }
        }
    }
}

fn named(name: &str) -> ObjectRef {
    ObjectRef { name: name.to_owned() }
}
