//! What a server has sent, as the engine's own types, so that it is printed in the same way.

use lockstep_client::{ColumnSet, RemoteClient, StatementResult};
use lockstep_diagnostic::{Diagnostic, Result};
use lockstep_engine::{Conversion, Database, Output};
use lockstep_row::{DataType, arrow::data_type};

/// Returns the rules by which values of a client's session are read and printed.
pub fn conversion_of(client: &RemoteClient) -> Conversion {
    let view = client.session();
    Conversion::of_names(&view.time_zone, &view.compatibility, view.nan_is_null)
        // A newer server may have other names: then those of a new session.
        .unwrap_or_else(|| Database::in_memory().session().conversion())
}

/// Returns the output of a statement that a server has run.
pub fn output_of(client: &RemoteClient, result: StatementResult) -> Result<Output> {
    let StatementResult { schema, names, batches, rows_affected, message, warnings } = result;
    let columns = columns_of(&ColumnSet { schema, names, roles: Vec::new() })?;
    let settings = conversion_of(client).settings();
    let output = Output { columns, batches, rows_affected, message, warnings, ..Output::default() };
    Ok(Output { settings, ..output })
}

/// Returns the names and types of columns.
pub fn columns_of(columns: &ColumnSet) -> Result<Vec<(String, DataType)>> {
    let types = columns.schema.fields().iter().map(|field| {
        let found = data_type(field.data_type());
        found.ok_or_else(|| {
            let message =
                format!("the server sent a column of unsupported type {}", field.data_type());
            Box::new(Diagnostic::internal(message))
        })
    });
    columns.names.iter().zip(types).map(|(name, of)| Ok((name.clone(), of?))).collect()
}
