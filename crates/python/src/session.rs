//! Sessions and relations as Python objects.

use std::{
    collections::HashMap,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{array::RecordBatch, datatypes::SchemaRef};
use lockstep_client::{RemoteClient, ServerAddress, TlsMode};
use lockstep_diagnostic::{Diagnostic, Kind, Result, code};
use lockstep_engine::{
    ArrowRows, Conversion, Database, Durability, OpenListener, OpenOptions, OpenProgress, Output,
    Parameter, StorageMode, SubscriptionStart, TableBatches, TrainingSetOptions, VerifyOptions,
};
use lockstep_host::sync::Mutex;
use lockstep_row::{DataType, Value};
use pyo3::{
    prelude::*,
    types::{PyDict, PyList},
};

use crate::{
    arrow_input::arrow_rows,
    backend::{Backend, BackendQuery, NewRows},
    batches::PyBatches,
    call::{attached, detached, writing},
    error::raise,
    from_python::{TargetColumn, is_missing, type_of, untyped, value_of},
    output::PyOutput,
    prepared::{PyPrepared, RequestColumnsCache},
    progress::reporting,
    rows::{FoundColumn, batch_of_dicts, batch_of_tuples, columns_of, schema_of},
};

/// A session with an in-memory database, a database directory or a server. Safe to share between
/// threads.
#[pyclass(frozen, name = "Session", module = "lockstep._lockstep")]
#[derive(Debug)]
pub(crate) struct PySession {
    session: Backend,
    columns: RequestColumnsCache,
}

#[pymethods]
impl PySession {
    /// Opens the database in a directory, or creates an in-memory database.
    #[new]
    #[pyo3(signature = (path=None, read_only=false, progress=None))]
    fn new(
        py: Python<'_>,
        path: Option<PathBuf>,
        read_only: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let database = match path {
            None => Database::in_memory(),
            Some(path) => open_directory(py, &path, read_only, progress)?,
        };
        let session = Backend::Engine(database.session());
        Ok(Self { session, columns: RequestColumnsCache::default() })
    }

    /// Connects to a server. `tls` and `ca` override the parameters of the same name in the address.
    #[staticmethod]
    #[pyo3(signature = (address, tls=None, ca=None))]
    fn connect(
        py: Python<'_>,
        address: &str,
        tls: Option<bool>,
        ca: Option<String>,
    ) -> PyResult<Self> {
        let connect = || {
            let mut address = ServerAddress::parse(address)?;
            match (tls, ca) {
                (Some(false), _) => address.tls = TlsMode::Off,
                (_, Some(path)) => address.tls = TlsMode::Authority(path),
                (Some(true), None) if address.tls == TlsMode::Off => address.tls = TlsMode::System,
                (Some(true) | None, None) => {}
            }
            RemoteClient::connect_to(address)
        };
        let session = Backend::Server(detached(py, None, connect)?);
        Ok(Self { session, columns: RequestColumnsCache::default() })
    }

    /// Closes the database.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, None, || self.session.close())
    }

    /// Raises an error if the database is closed.
    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        attached(py, || self.session.check_open())
    }

    /// Returns the result of opening a directory; None for an in-memory database.
    fn opened<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(opened) = self.session.opened() else { return Ok(None) };
        let fields = PyDict::new(py);
        fields.set_item("rows", opened.rows)?;
        fields.set_item("milliseconds", opened.milliseconds)?;
        let cut = opened.cut.as_ref();
        fields.set_item("cut_file", cut.map(|cut| cut.file.clone()))?;
        fields.set_item("cut_bytes", cut.map_or(0, |cut| cut.bytes))?;
        Ok(Some(fields))
    }

    /// Runs a script, or one statement with a value for each `?`.
    fn execute(
        &self,
        py: Python<'_>,
        sql: &str,
        parameters: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<PyOutput> {
        let values = parameters_of(py, parameters, self.session.conversion())?;
        let output = writing(py, Some(sql), || self.session.execute_with(sql, &values))?;
        Ok(PyOutput::new(output, sql))
    }

    /// Binds one query, with a value for each `?`, without running it.
    ///
    /// `find` is called with each name that is not a table; it returns an object with the Arrow stream
    /// interface, or `None`.
    #[pyo3(signature = (sql, parameters, find=None))]
    fn query(
        &self,
        py: Python<'_>,
        sql: &str,
        parameters: Vec<Bound<'_, PyAny>>,
        find: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyRelation> {
        let values = parameters_of(py, parameters, self.session.conversion())?;
        let find = find.map(|find| find.clone().unbind());
        let raised = Mutex::new(None);
        let find_object = |name: &str| match &find {
            Some(find) => find_in_python(find, name).map_err(|error| {
                *raised.lock() = Some(error);
                Box::new(Diagnostic::internal("the search for a named object failed"))
            }),
            None => Ok(None),
        };
        let bound =
            detached(py, Some(sql), || self.session.query_with(sql, &values, Some(&find_object)));
        let raised = raised.lock().take();
        if let Some(error) = raised {
            return Err(error);
        }
        Ok(PyRelation { relation: Arc::new(bound?), sql: sql.to_owned() })
    }

    /// Returns an iterator over the rows of a table or a stream as they are appended; `start` is
    /// `latest`, `earliest` or a position.
    fn subscribe(&self, py: Python<'_>, name: &str, start: &str) -> PyResult<PyBatches> {
        let start = match start {
            "latest" => Some(SubscriptionStart::Latest),
            "earliest" => Some(SubscriptionStart::Earliest),
            position => position.parse().ok().map(SubscriptionStart::Position),
        };
        let Some(start) = start else {
            let error = Diagnostic::new(
                code::INVALID_PARAMETER,
                "start must be 'latest', 'earliest' or a position",
            );
            return Err(raise(py, &error, None));
        };
        let rows = detached(py, None, || self.session.subscribe(name, start))?;
        PyBatches::start(py, Arc::new(rows), "", None)
    }

    /// Returns a relation for the training set of a deployment.
    #[pyo3(signature = (deployment, main_table=None, as_known=false))]
    fn training_set(
        &self,
        py: Python<'_>,
        deployment: &str,
        main_table: Option<String>,
        as_known: bool,
    ) -> PyResult<PyRelation> {
        let options = TrainingSetOptions { main_table, as_known };
        let made = detached(py, None, || self.session.training_set(deployment, &options))?;
        Ok(PyRelation { relation: Arc::new(made), sql: String::new() })
    }

    /// Appends an Arrow table. With `create` "missing", a table that does not exist is created; with
    /// "replacement", a table that exists is replaced as well. `durability` overrides the durability
    /// level of the table and the session; `storage_mode` is the option of a table that is created.
    fn append(
        &self,
        py: Python<'_>,
        table: &str,
        data: &Bound<'_, PyAny>,
        options: AppendOptions,
    ) -> PyResult<PyOutput> {
        let (create, durability, storage_mode) = read_options(py, options)?;
        let (batches, schema) = arrow_rows(data)?;
        let rows = NewRows { table, batches: &batches, durability, storage_mode };
        let appended = writing(py, None, || self.append_batches(&rows, &schema, create))?;
        Ok(PyOutput::new(appended, ""))
    }

    /// Appends rows given as dicts or tuples. Only dicts can create a table. The other parameters are as
    /// in `append`.
    fn append_rows(
        &self,
        py: Python<'_>,
        table: &str,
        rows: &Bound<'_, PyList>,
        options: AppendOptions,
    ) -> PyResult<PyOutput> {
        let (create, durability, storage_mode) = read_options(py, options)?;
        let (columns, batch) = self.batch_of_rows(py, table, rows, create)?;
        let schema = schema_of(&columns);
        debug_assert_eq!(batch.num_rows(), rows.len(), "each row is in the batch");
        let rows = NewRows { table, batches: &[batch], durability, storage_mode };
        let append = || self.append_batches(&rows, &schema, create);
        Ok(PyOutput::new(writing(py, None, append)?, ""))
    }

    /// Appends rows to several tables atomically: Arrow tables, or lists of dicts or tuples.
    #[pyo3(signature = (tables, durability=None))]
    fn append_tables(
        &self,
        py: Python<'_>,
        tables: &Bound<'_, PyList>,
        durability: Option<&str>,
    ) -> PyResult<PyOutput> {
        let durability = durability_of(py, durability)?;
        let tables: Vec<(String, Bound<'_, PyAny>)> = tables.extract()?;
        let mut batches: Vec<Vec<RecordBatch>> = Vec::with_capacity(tables.len());
        for (table, rows) in &tables {
            batches.push(match rows.cast::<PyList>() {
                Ok(rows) => vec![self.batch_of_rows(py, table, rows, Creates::No)?.1],
                Err(_) => arrow_rows(rows)?.0,
            });
        }
        let rows = tables.iter().zip(&batches);
        let rows: Vec<TableBatches<'_>> =
            rows.map(|((table, _), batches)| TableBatches { table, batches }).collect();
        let appended = writing(py, None, || self.session.append_tables(&rows, durability))?;
        Ok(PyOutput::new(appended, ""))
    }

    /// Compiles a deployment or a query for request mode.
    fn prepare(&self, py: Python<'_>, target: &str) -> PyResult<PyPrepared> {
        let request = match attached(py, || self.session.find_prepared(target))? {
            Some(request) => request,
            None => detached(py, Some(target), || self.session.prepare_request(target))?,
        };
        Ok(PyPrepared::new(py, request, self.session.conversion(), &self.columns))
    }

    /// Returns the description of a deployment.
    fn deployment<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
        let found = detached(py, None, || self.session.deployment(name))?;
        let fields = PyDict::new(py);
        fields.set_item("name", found.name)?;
        fields.set_item("database", found.database)?;
        fields.set_item("sql", found.sql)?;
        fields.set_item("compatibility", found.compatibility)?;
        fields.set_item("time_zone", found.time_zone)?;
        let text = |(name, data_type): (String, DataType)| (name, data_type.to_string());
        let inputs = found.input.into_iter().map(text).zip(found.reads);
        let inputs = inputs.map(|((name, data_type), is_read)| (name, data_type, is_read));
        fields.set_item("inputs", inputs.collect::<Vec<_>>())?;
        let outputs = found.output.into_iter().map(text);
        let outputs = outputs.map(|(name, data_type)| (name, data_type, true));
        fields.set_item("outputs", outputs.collect::<Vec<_>>())?;
        Ok(fields)
    }

    /// Returns the names and types of a table's columns; None if the table does not exist.
    fn columns_of_table(&self, py: Python<'_>, table: &str) -> Option<Vec<(String, String)>> {
        let columns = py.detach(|| self.session.table_columns(table)).ok()?;
        let text = |(name, data_type): (String, DataType)| (name, data_type.to_string());
        Some(columns.into_iter().map(text).collect())
    }

    /// Computes the results for the request rows in an Arrow table.
    fn request(&self, py: Python<'_>, target: &str, data: &Bound<'_, PyAny>) -> PyResult<PyOutput> {
        let (batches, _) = arrow_rows(data)?;
        let output = detached(py, Some(target), || self.session.request(target, &batches))?;
        Ok(PyOutput::new(output, target))
    }

    /// Replays stored rows as requests; `progress` is called with the fraction done.
    #[pyo3(signature = (deployment, sample=None, progress=None))]
    fn verify<'py>(
        &self,
        py: Python<'py>,
        deployment: &str,
        sample: Option<u64>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let found = reporting(py, None, progress, |progress| {
            self.session.verify_with(deployment, &VerifyOptions { sample, progress })
        })?;
        let fields = PyDict::new(py);
        fields.set_item("requests", found.requests)?;
        fields.set_item("values", found.values)?;
        fields.set_item("differing", found.differing)?;
        fields.set_item("rows_per_second", found.rows_per_second())?;
        let differences = found.differences.into_iter();
        let differences = differences.map(|one| (one.row, one.column, one.batch, one.request));
        fields.set_item("differences", differences.collect::<Vec<_>>())?;
        Ok(fields)
    }
}

impl PySession {
    /// Converts rows for a table, given as dicts or as tuples, with the columns that they have.
    fn batch_of_rows(
        &self,
        py: Python<'_>,
        table: &str,
        rows: &Bound<'_, PyList>,
        create: Creates,
    ) -> PyResult<(Vec<(String, DataType)>, RecordBatch)> {
        let by_name = rows.iter().all(|row| row.is_instance_of::<PyDict>());
        let is_created = create != Creates::No && by_name;
        let known = match py.detach(|| self.session.table_columns(table)) {
            Ok(_) if create == Creates::Replacement && by_name => None,
            Ok(known) => Some(known),
            Err(error) if error.code == code::UNDEFINED_TABLE && is_created => None,
            Err(error) if error.code == code::UNDEFINED_TABLE && create != Creates::No => {
                let hint = "Pass dicts, which name the columns, or create the table first.";
                return Err(raise(py, &error.with_hint(hint), None));
            }
            Err(error) => return Err(raise(py, &error, None)),
        };
        let (columns, batch) = if by_name {
            let columns = columns_of(rows)?.and_then(|found| with_types(found, known.as_deref()));
            let columns = columns.map_err(|error| raise(py, &error, None))?;
            let batch = batch_of_dicts(rows, &columns, self.session.conversion())?;
            (columns, batch)
        } else {
            let columns = known.unwrap_or_default();
            let batch = batch_of_tuples(rows, &columns, self.session.conversion())?;
            (columns, batch)
        };
        let batch = batch.map_err(|error| raise(py, &error, None))?;
        Ok((columns, batch))
    }

    /// Appends rows; where the table is to be created, it is created with the columns `schema`.
    fn append_batches(
        &self,
        rows: &NewRows<'_>,
        schema: &SchemaRef,
        create: Creates,
    ) -> Result<Output> {
        let NewRows { table, batches, durability, .. } = *rows;
        if create == Creates::Replacement {
            return self.session.create_table_of(rows, schema, true);
        }
        let append = || self.session.append_batches_as(table, batches, durability);
        match append() {
            Err(error) if error.code == code::UNDEFINED_TABLE && create == Creates::Missing => {}
            appended => return appended,
        }
        match self.session.create_table_of(rows, schema, false) {
            // Another thread was faster.
            Err(error) if error.code == code::DUPLICATE_TABLE => append(),
            created => created,
        }
    }
}

/// Opens the database in a directory. `progress` is called with rows, milliseconds, and the
/// milliseconds that are left if that is known; when it raises, so does the opening.
fn open_directory(
    py: Python<'_>,
    path: &Path,
    read_only: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<Database> {
    let raised = Arc::new(Mutex::new(None));
    let listener = progress.map(|callback| {
        let raised = Arc::clone(&raised);
        OpenListener::stopping(move |progress| {
            let OpenProgress { rows, milliseconds, milliseconds_left } = progress;
            let arguments = (rows, milliseconds, milliseconds_left);
            match Python::attach(|py| callback.call1(py, arguments)) {
                Ok(_) => ControlFlow::Continue(()),
                Err(error) => {
                    *raised.lock() = Some(error);
                    ControlFlow::Break(())
                }
            }
        })
    });
    let options = OpenOptions { read_only, listener, ..OpenOptions::default() };
    let opened = detached(py, None, || Database::open_with(path, &options));
    opened.map_err(|error| raised.lock().take().unwrap_or(error))
}

/// How rows are appended: whether the table is created, the level of durability, and the storage mode of a table
/// that is created.
type AppendOptions = (String, Option<String>, Option<String>);

/// Whether an append creates its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creates {
    No,
    /// Where it does not exist.
    Missing,
    /// In place of the one that exists, too.
    Replacement,
}

impl Creates {
    /// Reads what the Python half gives.
    fn of(name: &str) -> Self {
        match name {
            "missing" => Self::Missing,
            "replacement" => Self::Replacement,
            _ => Self::No,
        }
    }
}

/// Reads how rows are appended.
fn read_options(
    py: Python<'_>,
    options: AppendOptions,
) -> PyResult<(Creates, Option<Durability>, Option<StorageMode>)> {
    let (create, durability, storage_mode) = options;
    let durability = durability_of(py, durability.as_deref())?;
    let storage_mode = storage_mode.as_deref().map(StorageMode::of).transpose();
    let storage_mode = storage_mode.map_err(|error| raise(py, &error, None))?;
    Ok((Creates::of(&create), durability, storage_mode))
}

/// Reads the name of a level of durability.
fn durability_of(py: Python<'_>, name: Option<&str>) -> PyResult<Option<Durability>> {
    Ok(Some(match name {
        None => return Ok(None),
        Some("disk") => Durability::Disk,
        Some("os") => Durability::Os,
        Some("memory") => Durability::Memory,
        Some(other) => {
            let message = format!(
                "invalid value for parameter `durability`: '{other}' (expected 'disk', 'os' or 'memory')"
            );
            let error = Diagnostic::new(code::INVALID_PARAMETER, message);
            return Err(raise(py, &error, None));
        }
    }))
}

/// Converts the values for `?`, to the types that they would have as literals of SQL.
fn parameters_of(
    py: Python<'_>,
    objects: Vec<Bound<'_, PyAny>>,
    conversion: Conversion,
) -> PyResult<Vec<Parameter>> {
    let parameter = |(number, object): (usize, Bound<'_, PyAny>)| {
        if object.is_none() {
            return Ok((Value::Null, DataType::Null));
        }
        let name = format!("?{}", number + 1);
        let wide = match type_of(&object) {
            Some(wide) => wide,
            None if is_missing(&object) => return Ok((Value::Null, DataType::Null)),
            None => {
                let place = format!("parameter {}", number + 1);
                return Err(raise(py, &untyped(&object, &place), None));
            }
        };
        let target = TargetColumn { name: &name, data_type: &wide, conversion };
        let value = value_of(&object, &target).map_err(|error| raise(py, &error, None))?;
        Ok(match value {
            Value::BigInt(long) => match i32::try_from(long) {
                Ok(short) => (Value::Int(short), DataType::Int),
                Err(_) => (value, wide),
            },
            Value::Null => (Value::Null, DataType::Null),
            value => (value, wide),
        })
    };
    objects.into_iter().enumerate().map(parameter).collect()
}

/// Returns the columns of the rows, with the table's types where there is a table.
fn with_types(
    found: Vec<FoundColumn>,
    known: Option<&[(String, DataType)]>,
) -> Result<Vec<(String, DataType)>> {
    let types: HashMap<&str, &DataType> =
        known.unwrap_or_default().iter().map(|(column, of)| (column.as_str(), of)).collect();
    let type_of = |FoundColumn { name, data_type, untyped }: FoundColumn| match (
        types.get(name.as_str()),
        known,
        data_type,
    ) {
        (Some(data_type), ..) => Ok((name, (*data_type).clone())),
        (None, None, Some(inferred)) => Ok((name, inferred)),
        (None, None, None) if let Some(untyped) = untyped => Err(untyped),
        (None, None, None) => {
            let message = format!("cannot determine the type of column `{name}`: it has no value");
            Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .with_kind(Kind::FixData)
                .with_hint(
                    "Create the table first, or pass a value that is not None for the column.",
                )
                .err()
        }
        (None, Some(known), _) => {
            let names = known.iter().map(|(column, _)| column.as_str());
            let message = format!("column `{name}` does not exist in the table");
            Diagnostic::new(code::UNDEFINED_COLUMN, message).with_nearest(&name, names).err()
        }
    };
    found.into_iter().map(type_of).collect()
}

/// A bound query.
#[pyclass(frozen, name = "Relation", module = "lockstep._lockstep")]
#[derive(Debug)]
pub(crate) struct PyRelation {
    relation: Arc<BackendQuery>,
    sql: String,
}

#[pymethods]
impl PyRelation {
    #[getter]
    fn columns(&self) -> Vec<(String, String)> {
        let columns = self.relation.columns().iter();
        columns.map(|(name, data_type)| (name.clone(), data_type.to_string())).collect()
    }

    /// Runs the query. `progress` is called with the fraction done, from 0 to 1.
    #[pyo3(signature = (progress=None))]
    fn collect(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<PyOutput> {
        let collect = |progress| self.relation.collect(progress);
        let output = reporting(py, Some(&self.sql), progress, collect)?;
        Ok(PyOutput::new(output, &self.sql))
    }

    /// Runs the query and writes its rows to a file or a directory.
    fn write(&self, py: Python<'_>, path: &str, options: &Bound<'_, PyDict>) -> PyResult<PyOutput> {
        let options = file_options(options)?;
        let output = detached(py, Some(&self.sql), || self.relation.write(path, &options))?;
        Ok(PyOutput::new(output, &self.sql))
    }

    /// Runs the query and returns an iterator over batches of `rows` rows.
    fn batches(&self, py: Python<'_>, rows: usize) -> PyResult<PyBatches> {
        PyBatches::start(py, Arc::clone(&self.relation), &self.sql, Some(rows))
    }
}

/// Converts the options of writing files: truth values, whole numbers and texts.
pub(crate) fn file_options(options: &Bound<'_, PyDict>) -> PyResult<Vec<(String, Value)>> {
    let option = |(name, object): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let value = match (object.extract::<bool>(), object.extract::<i32>()) {
            (Ok(value), _) => Value::Bool(value),
            (_, Ok(value)) => Value::Int(value),
            _ => Value::String(object.extract::<String>()?.into()),
        };
        Ok((name.extract()?, value))
    };
    options.iter().map(option).collect()
}

/// Asks the caller's program for the object of a name.
fn find_in_python(find: &Py<PyAny>, name: &str) -> PyResult<Option<ArrowRows>> {
    Python::attach(|py| {
        let found = find.bind(py).call1((name,))?;
        if found.is_none() {
            return Ok(None);
        }
        let (batches, schema) = arrow_rows(&found)?;
        Ok(Some((schema, batches)))
    })
}
