//! CREATE PROCEDURE, DROP PROCEDURE, CALL and SHOW PROCEDURES.
//!
//! A procedure answers like a deployment, and it lists its parameters, which must be the columns of
//! the request table.

use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_plan::{BoundQuery, bind_constant, lineage::to_leaf, type_of};
use lockstep_request::PreAggregation;
use lockstep_row::{Arena, DataType, Datum, Value, arrow::ColumnBuilder};
use lockstep_sql::ast::{CreateProcedure, Expr, ObjectName};

use super::outcome;
use crate::{
    Output, Parameter, PreparedRequest, Session,
    catalog::{CatalogCommand, Definition, DropSignal, ObjectKind, QualifiedName},
    database::TableSet,
    deployment::{Procedure, query_text, references},
    lint::{self, Purpose},
    literal::{ConstantPosition, coerce},
    options::{OptionTable, UnknownOption},
    view::views_of,
};

/// CREATE PROCEDURE has no options; those of OpenMLDB's scripts are ignored with a warning.
const OPTIONS: OptionTable<'_, ()> = OptionTable {
    specs: &[],
    unknown: UnknownOption::Warning,
    error_code: code::INVALID_PARAMETER,
};

impl Session {
    /// Runs CREATE PROCEDURE.
    pub(crate) fn create_procedure(
        &self,
        create: &CreateProcedure,
        script: &str,
    ) -> Result<Output> {
        let name = self.qualified(&create.name);
        let tolerated = create.if_not_exists.then_some(code::DUPLICATE_OBJECT);
        let free = self.database.objects().check_procedure_free(&name, create.or_replace);
        if free.is_err() {
            return outcome(free, tolerated, &create.name, "CREATE PROCEDURE");
        }
        let seen = self.database.objects().epoch();
        let (procedure, warnings) = self.compile_procedure(name, create, script)?;
        let (procedure, or_replace) = (Arc::new(procedure), create.or_replace);
        let command = CatalogCommand::CreateProcedure { procedure, or_replace, seen };
        let committed = self.database.commit(&command);
        Ok(Output { warnings, ..outcome(committed, tolerated, &create.name, "CREATE PROCEDURE")? })
    }

    /// Compiles the procedure; the warnings are the second value.
    fn compile_procedure(
        &self,
        name: QualifiedName,
        create: &CreateProcedure,
        script: &str,
    ) -> Result<(Procedure, Vec<Diagnostic>)> {
        if create.temporary {
            return Diagnostic::unsupported("a temporary procedure is not supported")
                .at(create.name.name.span)
                .with_hint("Omit TEMP, and drop the procedure after use.")
                .err();
        }
        let [query] = create.body.as_slice() else {
            let message = format!("a procedure must contain one query, not {}", create.body.len());
            return Diagnostic::new(code::SYNTAX_ERROR, message).at(create.span).err();
        };
        let bound = self.bind(query)?;
        check_parameters(create, &bound)?;
        let common_input: Vec<bool> =
            create.parameters.iter().map(|parameter| parameter.constant).collect();
        let common_output = common_outputs(&bound.plan, &common_input);
        let tables = TableSet::of(&self.database.entries_of(&bound.plan)?)
            .owned_by(&name)
            .spilling_to(self.database.temporary_storage());
        let definition = Definition::new(ObjectKind::Procedure, name);
        let (owner, owners) = self.owners_of(&definition, &bound);
        let off = PreAggregation::Off;
        let request = PreparedRequest::compile_deployed(&bound, &tables, &definition, owners, off)?;
        let mut warnings = OPTIONS.read(&create.options, &mut ())?;
        if !self.is_restored() {
            warnings.extend(lint::check(&bound, &tables, Purpose::Serving, script));
        }
        let procedure = Procedure {
            definition,
            sql: query_text(script, create.span),
            request: Arc::new(request),
            tables: references(&bound.plan),
            views: views_of(&bound),
            settings: self.settings(),
            current_database: self.current_database(),
            indexes: self.indexes_of(&bound.plan),
            common_input,
            common_output,
            owner,
            dropped: DropSignal::default(),
        };
        Ok((procedure, warnings))
    }

    /// Runs DROP PROCEDURE.
    pub(crate) fn drop_procedure(&self, name: &ObjectName, if_exists: bool) -> Result<Output> {
        let command = CatalogCommand::DropProcedure { name: self.qualified(name) };
        let tolerated = if_exists.then_some(code::UNDEFINED_OBJECT);
        outcome(self.database.commit(&command), tolerated, name, "DROP PROCEDURE")
    }

    /// Finds the program of a call, and reads the values of its request row.
    pub(crate) fn called(
        &self,
        name: &ObjectName,
        arguments: &[Expr],
        parameters: &[Parameter],
    ) -> Result<CalledRequest> {
        let request = match self.find_procedure(name) {
            Ok(procedure) => Arc::clone(&procedure.request),
            Err(error) => match self.find_deployment(&self.qualified(name).to_string()) {
                Ok(deployment) => Arc::clone(&deployment.request),
                Err(_) => return Err(error),
            },
        };
        let input = request.input();
        if arguments.len() != input.len() {
            let (expected, found) = (input.len(), arguments.len());
            let message = format!(
                "`{}` requires {expected} values, but {found} were supplied",
                name.name.text
            );
            return Diagnostic::new(code::INVALID_PARAMETER, message).at(name.name.span).err();
        }
        let options = self.bind_options(parameters);
        let value = |(argument, (column, data_type)): (&Expr, &(String, DataType))| {
            let Some(value) = bind_constant(argument, &options) else {
                return Diagnostic::new(
                    code::FEATURE_NOT_SUPPORTED,
                    "CALL supports only constants",
                )
                .at(argument.span)
                .err();
            };
            let position = ConstantPosition { column, span: Some(argument.span) };
            coerce(&value, data_type, options.settings, &position)
        };
        let row: Vec<Value> = arguments.iter().zip(input).map(value).collect::<Result<_>>()?;
        Ok(CalledRequest { request, row })
    }

    /// Runs SHOW CREATE PROCEDURE.
    pub(crate) fn show_create_procedure(&self, name: &ObjectName) -> Result<Output> {
        let found = self.find_procedure(name)?;
        let QualifiedName { database, name } = found.name();
        let row = [database, name, &found.sql].map(|text| Some(text.clone()));
        Output::of_texts(&["DB", "SP", "SQL"], &[row.to_vec()])
    }

    /// Runs SHOW PROCEDURES: those of every database.
    pub(crate) fn show_procedures(&self) -> Result<Output> {
        let objects = self.database.objects();
        let procedures = objects.databases().values().flat_map(|found| found.procedures.values());
        let names = procedures.map(|procedure| procedure.name());
        let is_seen = |name: &&QualifiedName| {
            self.caller().sees_deployment(&objects, &name.database, &name.name)
        };
        let names = names.filter(is_seen);
        let rows: Vec<_> =
            names.map(|name| vec![Some(name.database.clone()), Some(name.name.clone())]).collect();
        Output::of_texts(&["DB", "SP"], &rows)
    }

    pub(crate) fn find_procedure(&self, name: &ObjectName) -> Result<Arc<Procedure>> {
        let wanted = self.qualified(name);
        let objects = self.database.objects();
        let found = objects.databases().get(&wanted.database);
        match found.and_then(|found| found.procedures.get(&wanted.name)) {
            Some(found) => Ok(Arc::clone(found)),
            None => objects.no_procedure(&wanted).at(name.name.span).err(),
        }
    }
}

/// The program and the request row of a CALL.
pub(crate) struct CalledRequest {
    pub(super) request: Arc<PreparedRequest>,
    pub(super) row: Vec<Value>,
}

impl CalledRequest {
    /// Runs CALL: answers one request whose row is these constants.
    pub(crate) fn answer(&self) -> Result<Output> {
        let arena = Arena::new();
        let answer = self.request.answer(&data_of(&self.row, &arena), &arena)?;
        let columns = self.request.output().to_vec();
        let mut builders: Vec<ColumnBuilder> =
            columns.iter().map(|(_, data_type)| ColumnBuilder::new(data_type, 1)).collect();
        for (builder, value) in builders.iter_mut().zip(answer.into_iter().flatten()) {
            builder.push(*value);
        }
        let count = usize::from(answer.is_some());
        Output::of_columns(columns, builders, count)
    }
}

/// Returns the values of a request row.
pub(super) fn data_of<'v>(row: &'v [Value], arena: &'v Arena) -> Vec<Datum<'v>> {
    row.iter().map(|value| value.as_datum(arena)).collect()
}

/// Returns which columns of the answer are copies of CONST parameters, and so equal for all rows of a
/// batch of requests: those of a query that does nothing but select columns of its request table.
fn common_outputs(plan: &LogicalPlan, common_input: &[bool]) -> Vec<bool> {
    let is_selection = selects_columns_only(plan);
    debug_assert!(!plan.schema().fields().is_empty(), "an answer has columns");
    let is_common = |output| {
        let copied = is_selection.then(|| to_leaf(plan, output)).flatten();
        copied.is_some_and(|column| common_input.get(column) == Some(&true))
    };
    (0..plan.schema().fields().len()).map(is_common).collect()
}

/// Returns whether a plan has no operator but projections over a scan.
fn selects_columns_only(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => true,
        LogicalPlan::Projection(projection) => selects_columns_only(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => selects_columns_only(&alias.input),
        _ => false,
    }
}

/// Checks that the parameters are the columns of the request table, in order.
fn check_parameters(create: &CreateProcedure, bound: &BoundQuery) -> Result<()> {
    let columns = bound.request_table.as_ref().map_or(&[][..], |t| t.schema.columns.as_slice());
    if columns.len() != create.parameters.len() {
        let message = format!(
            "the procedure has {} parameters, but its request table has {} columns",
            create.parameters.len(),
            columns.len()
        );
        return Diagnostic::new(code::DATATYPE_MISMATCH, message).at(create.name.name.span).err();
    }
    for (parameter, column) in create.parameters.iter().zip(columns) {
        let data_type = type_of(&parameter.data_type)?;
        if parameter.name.text != column.name || data_type != column.data_type {
            let message = format!(
                "parameter `{}` {data_type} does not match column `{}` {} of the request table",
                parameter.name.text, column.name, column.data_type
            );
            return Diagnostic::new(code::DATATYPE_MISMATCH, message).at(parameter.name.span).err();
        }
    }
    Ok(())
}
