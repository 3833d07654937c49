//! Procedures: named requests whose row is declared with them, called with CALL.
//!
//! `session` calls it. A procedure answers like a deployment; what it adds is the list of its
//! parameters, which must be the columns of the request table.

use std::sync::Arc;

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_plan::{BindOptions, BoundQuery, bind_constant, type_of};
use lockstep_row::{Arena, DataType, Datum, Value, arrow::ColumnBuilder};
use lockstep_sql::ast::{CreateProcedure, Expr, ObjectName};

use crate::{
    Output, Parameter, PreparedRequest, Session,
    deployment::{query_text, tables_of},
    lint,
    literal::{Place, coerce},
    request::output_batch,
    session::{done, no_database},
    show,
    table_options::ignored,
};

/// A procedure. Immutable.
#[derive(Debug)]
pub(crate) struct Procedure {
    pub(crate) name: String,
    pub(crate) database: String,
    /// The statement that made it.
    pub(crate) sql: String,
    pub(crate) request: Arc<PreparedRequest>,
    /// The tables it reads, which cannot be dropped while it exists.
    pub(crate) table_ids: Vec<u64>,
}

impl Session {
    pub(crate) fn create_procedure(
        &self,
        create: &CreateProcedure,
        script: &str,
    ) -> Result<Output> {
        let name = create.name.name.text.clone();
        let database = self.database_of(&create.name);
        {
            let objects = self.database.objects();
            let Some(found) = objects.databases.get(&database) else {
                let at = create.name.database.as_ref().unwrap_or(&create.name.name);
                return no_database(at, objects.databases.keys().map(String::as_str));
            };
            let is_replaced = create.or_replace && found.procedures.contains_key(&name);
            if !is_replaced
                && (found.procedures.contains_key(&name) || found.deployments.contains_key(&name))
            {
                if create.if_not_exists {
                    return Ok(done("CREATE PROCEDURE"));
                }
                let message = format!("procedure `{name}` exists already");
                let at = create.name.name.span;
                return Diagnostic::new(code::DUPLICATE_OBJECT, message).at(at).err();
            }
        }
        if create.temporary {
            return Diagnostic::unsupported("a temporary procedure is not supported")
                .at(create.name.name.span)
                .with_hint("Leave TEMP out, and drop the procedure when it is done with.")
                .err();
        }
        let [query] = create.body.as_slice() else {
            let message = format!("a procedure holds one query, not {}", create.body.len());
            return Diagnostic::new(code::SYNTAX_ERROR, message).at(create.span).err();
        };
        let bound = self.bind(query)?;
        check_parameters(create, &bound)?;
        let tables = self.database.tables();
        let request = PreparedRequest::compile_to_stay(&bound, &tables)?;
        let mut warnings: Vec<_> = create.options.iter().map(|item| ignored(item, &[])).collect();
        warnings.extend(lint::check(&bound, &tables, lint::Purpose::Serving));
        let procedure = Procedure {
            sql: query_text(script, create.span),
            request: Arc::new(request),
            table_ids: tables_of(&bound.plan).iter().map(|table| table.id).collect(),
            database: database.clone(),
            name: name.clone(),
        };
        let mut objects = self.database.objects_mut();
        let Some(found) = objects.databases.get_mut(&database) else {
            return no_database(&create.name.name, std::iter::empty());
        };
        found.procedures.insert(name, Arc::new(procedure));
        Ok(Output { warnings, ..done("CREATE PROCEDURE") })
    }

    pub(crate) fn drop_procedure(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let database = self.database_of(name);
        let mut objects = self.database.objects_mut();
        let found = objects.databases.get_mut(&database);
        let removed = found.and_then(|found| found.procedures.remove(&name.name.text));
        drop(objects);
        if removed.is_none() && !if_exists {
            return self.find_procedure(name).map(|_| done("DROP PROCEDURE"));
        }
        Ok(done("DROP PROCEDURE"))
    }

    /// CALL: one request with these constants.
    pub(crate) fn call_procedure(
        &self,
        name: &ObjectName,
        arguments: &[Expr],
        parameters: &[Parameter],
    ) -> Result<Output> {
        let request = match self.find_procedure(name) {
            Ok(procedure) => Arc::clone(&procedure.request),
            Err(error) => {
                let text = format!("{}.{}", self.database_of(name), name.name.text);
                self.find_deployment(&text).map(|found| Arc::clone(&found.request)).ok_or(error)?
            }
        };
        let input = request.input();
        if arguments.len() != input.len() {
            let (expected, found) = (input.len(), arguments.len());
            let message = format!("`{}` takes {expected} values, not {found}", name.name.text);
            return Diagnostic::new(code::INVALID_PARAMETER, message).at(name.name.span).err();
        }
        let settings = self.settings();
        let options = BindOptions { settings, parameters: parameters.to_vec() };
        let value = |(argument, (column, data_type)): (&Expr, &(String, DataType))| {
            let Some(value) = bind_constant(argument, &options) else {
                return Diagnostic::new(code::FEATURE_NOT_SUPPORTED, "CALL takes constants only")
                    .at(argument.span)
                    .err();
            };
            coerce(&value, data_type, settings, &Place { column, span: Some(argument.span) })
        };
        let row: Vec<Value> = arguments.iter().zip(input).map(value).collect::<Result<_>>()?;
        let arena = Arena::new();
        let row: Vec<Datum<'_>> = row.iter().map(|value| value.as_datum(&arena)).collect();
        let answer = request.answer(&row, &arena)?;
        let columns = request.output().to_vec();
        let mut builders: Vec<ColumnBuilder> =
            columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, 1)).collect();
        for (builder, value) in builders.iter_mut().zip(answer.into_iter().flatten()) {
            builder.push(*value);
        }
        let count = usize::from(answer.is_some());
        let batch = output_batch(&columns, builders, count)?;
        Ok(Output { columns, batches: vec![batch], ..Output::default() })
    }

    pub(crate) fn show_create_procedure(&self, name: &ObjectName) -> Result<Output> {
        let found = self.find_procedure(name)?;
        let row = [&found.database, &found.name, &found.sql].map(|text| Some(text.clone()));
        show::texts(&["DB", "SP", "SQL"], &[row.to_vec()])
    }

    pub(crate) fn show_procedures(&self) -> Result<Output> {
        let objects = self.database.objects();
        let procedures = objects.databases.values().flat_map(|found| found.procedures.values());
        let rows: Vec<_> =
            procedures.map(|p| vec![Some(p.database.clone()), Some(p.name.clone())]).collect();
        show::texts(&["DB", "SP"], &rows)
    }

    fn find_procedure(&self, name: &ObjectName) -> Result<Arc<Procedure>> {
        let database = self.database_of(name);
        let objects = self.database.objects();
        let procedures = objects.databases.get(&database).map(|found| &found.procedures);
        if let Some(found) = procedures.and_then(|found| found.get(&name.name.text)) {
            return Ok(Arc::clone(found));
        }
        let message =
            format!("procedure `{}` does not exist in database `{database}`", name.name.text);
        let names = procedures.into_iter().flat_map(|found| found.keys());
        Diagnostic::new(code::UNDEFINED_OBJECT, message)
            .at(name.name.span)
            .with_nearest(&name.name.text, names.map(String::as_str))
            .err()
    }
}

/// The parameters are the columns of the request table, in order.
fn check_parameters(create: &CreateProcedure, bound: &BoundQuery) -> Result<()> {
    let columns = bound.request_table.as_ref().map_or(&[][..], |t| t.schema.columns.as_slice());
    if columns.len() != create.parameters.len() {
        let message = format!(
            "the procedure has {} parameters, its request table {} columns",
            create.parameters.len(),
            columns.len()
        );
        return Diagnostic::new(code::DATATYPE_MISMATCH, message).at(create.name.name.span).err();
    }
    for (parameter, column) in create.parameters.iter().zip(columns) {
        let data_type = type_of(&parameter.data_type)?;
        if parameter.name.text != column.name || data_type != column.data_type {
            let message = format!(
                "parameter `{}` {data_type} is not the column `{}` {} of the request table",
                parameter.name.text, column.name, column.data_type
            );
            return Diagnostic::new(code::DATATYPE_MISMATCH, message).at(parameter.name.span).err();
        }
    }
    Ok(())
}
