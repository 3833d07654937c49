//! The binder's state for one statement: the catalog, the settings, unique internal names, the
//! common tables in scope, and what was counted and recorded so far.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use arrow::datatypes::Field;
use datafusion::{
    common::{Column, DataFusionError, TableReference},
    logical_expr::{
        Expr, LogicalPlan, LogicalPlanBuilder, Projection, TableScanBuilder, TableSource,
    },
};
use lockstep_diagnostic::{Diagnostic, Result, Span};
use lockstep_function::Settings;
use lockstep_row::{DataType, Value, arrow::arrow_type};

use crate::{
    BindOptions, Catalog, CatalogTable, Written,
    expression::{ExprBinder, NonListCalls},
    last_join::schema_of_unique,
    scope::{NameScope, Qualifier, ScopeColumn},
    select::expression_count,
    size::{Size, Weight},
    sub_query::SelectSubQueries,
    view::{NamedObjects, ViewsInUse},
};

/// The binder of one statement.
pub(crate) struct Binder<'a> {
    pub(crate) catalog: &'a dyn Catalog,
    pub(crate) settings: Settings,
    pub(crate) parameters: &'a [(Value, DataType)],
    /// See [`BindOptions`].
    pub(crate) as_postgres: bool,
    /// The number of times that each internal name was requested.
    names: RefCell<HashMap<String, usize>>,
    /// The common tables in scope, innermost last.
    pub(crate) common_tables: RefCell<Vec<BoundCommonTable>>,
    /// The views whose queries are being bound, innermost last.
    pub(crate) views_in_use: RefCell<ViewsInUse>,
    /// The objects that the statement names, and the views that it uses.
    pub(crate) named: RefCell<NamedObjects>,
    /// The windows and joins bound so far, as they were written.
    pub(crate) written: RefCell<Written>,
    /// The size of the statement so far.
    pub(crate) size: Size,
    /// The sub-queries in expressions of the SELECTs that are being bound, innermost last; `None` where
    /// there may be none.
    pub(crate) sub_queries: RefCell<Vec<Option<SelectSubQueries>>>,
    /// The calls of `at` whose first argument is known not to be a list.
    non_list_calls: RefCell<NonListCalls>,
}

/// A bound common table.
#[derive(Debug)]
pub(crate) struct BoundCommonTable {
    pub(crate) name: String,
    pub(crate) relation: BoundRelation,
    /// The size that each use of it adds to the statement.
    pub(crate) weight: Weight,
}

/// A bound FROM item or query: its plan and the names of its columns.
#[derive(Debug, Clone)]
pub(crate) struct BoundRelation {
    pub(crate) plan: LogicalPlan,
    pub(crate) scope: NameScope,
}

/// The size of a select list, in expressions, above which its types are taken from the binder.
/// DataFusion would derive them from the leaves again, and build the name of each part of an
/// expression on the way.
const TYPED_EXPRESSIONS_MAX: usize = 256;

impl<'a> Binder<'a> {
    pub(crate) fn new(catalog: &'a dyn Catalog, options: &'a BindOptions) -> Self {
        Self {
            catalog,
            settings: options.settings,
            parameters: &options.parameters,
            as_postgres: options.as_postgres,
            names: RefCell::default(),
            common_tables: RefCell::default(),
            views_in_use: RefCell::default(),
            named: RefCell::default(),
            written: RefCell::default(),
            size: Size::default(),
            sub_queries: RefCell::default(),
            non_list_calls: RefCell::default(),
        }
    }

    /// Returns a name that no other column or relation of this statement has.
    pub(crate) fn unique(&self, requested: &str) -> String {
        unique_name(&mut self.names.borrow_mut(), requested)
    }

    /// Binds expressions that may not hold aggregates.
    pub(crate) fn scalar_binder<'b>(&'b self, scope: &'b NameScope) -> ExprBinder<'b> {
        ExprBinder {
            scope,
            settings: self.settings,
            parameters: self.parameters,
            aggregates: None,
            written: Some(&self.written),
            size: &self.size,
            non_list_calls: Some(&self.non_list_calls),
            sub_queries: Some(self),
            aliased: &[],
            as_postgres: self.as_postgres,
        }
    }

    /// Returns the database of unqualified names.
    pub(crate) fn current_database(&self) -> String {
        match self.views_in_use.borrow().current_database() {
            Some(database) => database.to_owned(),
            None => self.catalog.current_database().to_owned(),
        }
    }

    /// Returns the qualifier of an alias, which belongs to the current database.
    pub(crate) fn alias_qualifier(&self, alias: &str) -> Qualifier {
        Qualifier { database: Some(self.current_database()), table: alias.to_owned() }
    }

    /// Returns the scan of a stored table under an alias.
    pub(crate) fn scan(
        &self,
        table: &Arc<CatalogTable>,
        alias: Option<&str>,
    ) -> Result<BoundRelation> {
        self.size.add(Weight::of_scan(table.schema.columns.len()), Span::default())?;
        let relation = self.unique(alias.unwrap_or(&table.name));
        let source: Arc<dyn TableSource> = Arc::<CatalogTable>::clone(table);
        let name = TableReference::bare(relation.as_str());
        let scan = TableScanBuilder::new(name.clone(), source).build().map_err(planning)?;
        let qualifier = match alias {
            Some(alias) => self.alias_qualifier(alias),
            None => Qualifier { database: Some(table.database.clone()), table: table.name.clone() },
        };
        let columns = table.schema.columns.iter().map(|column| ScopeColumn {
            qualifier: Some(qualifier.clone()),
            origin: None,
            name: column.name.clone(),
            column: Column::new(Some(name.clone()), column.name.as_str()),
            data_type: column.data_type.clone(),
        });
        let scope = NameScope { columns: columns.collect() };
        Ok(BoundRelation { plan: LogicalPlan::TableScan(scan), scope })
    }

    /// Projects `plan` to these expressions under unique internal names; the scope has the user's
    /// names and no qualifier.
    pub(crate) fn project(
        &self,
        plan: LogicalPlan,
        items: Vec<(String, Expr, DataType)>,
        relation: &str,
    ) -> Result<BoundRelation> {
        self.size.add_operators(1, Span::default())?;
        self.project_as(plan, items, &self.unique(relation))
    }

    /// Projects `plan` to these expressions, qualified by `relation`, a name that the caller made
    /// unique.
    pub(crate) fn project_as(
        &self,
        plan: LogicalPlan,
        items: Vec<(String, Expr, DataType)>,
        relation: &str,
    ) -> Result<BoundRelation> {
        // Names are taken as they are: text would be parsed, and folded to lower case.
        let reference = TableReference::bare(relation);
        self.size.add_expressions(items.len(), Span::default())?;
        let mut used: HashMap<String, usize> = HashMap::new();
        let mut exprs = Vec::with_capacity(items.len());
        let mut columns = Vec::with_capacity(items.len());
        for (name, expr, data_type) in items {
            let internal = unique_name(&mut used, &name);
            exprs.push(expr.alias_qualified(Some(reference.clone()), internal.as_str()));
            let column = Column::new(Some(reference.clone()), internal);
            columns.push(ScopeColumn { qualifier: None, origin: None, name, column, data_type });
        }
        debug_assert_eq!(exprs.len(), columns.len(), "each expression is a column of the scope");
        let is_large = exprs.iter().map(expression_count).sum::<usize>() > TYPED_EXPRESSIONS_MAX;
        let projection = if is_large {
            let fields = columns.iter().map(|known| {
                let field = Field::new(&known.column.name, arrow_type(&known.data_type), true);
                (Some(reference.clone()), Arc::new(field))
            });
            let schema = schema_of_unique(fields).map_err(planning)?;
            Projection::try_new_with_schema(exprs, Arc::new(plan), Arc::new(schema))
        } else {
            Projection::try_new(exprs, Arc::new(plan))
        };
        let projection = projection.map_err(planning)?;
        Ok(BoundRelation {
            plan: LogicalPlan::Projection(projection),
            scope: NameScope { columns },
        })
    }
}

impl BoundRelation {
    /// Qualifies the columns by an alias; without one, they keep their tables' names.
    pub(crate) fn aliased(mut self, alias: Option<Qualifier>) -> Self {
        if let Some(alias) = alias {
            for column in &mut self.scope.columns {
                column.qualifier = Some(alias.clone());
                column.origin = None;
            }
        }
        self
    }

    /// Lets columns that are copies of columns of `below` be qualified by those columns' tables.
    pub(crate) fn qualified_like(mut self, below: &NameScope) -> Self {
        let LogicalPlan::Projection(projection) = &self.plan else { return self };
        for (column, expr) in self.scope.columns.iter_mut().zip(&projection.expr) {
            let mut expr = expr;
            while let Expr::Alias(alias) = expr {
                expr = &alias.expr;
            }
            if let Expr::Column(source) = expr
                && let Some(found) = below.columns.iter().find(|known| known.column == *source)
                && found.name == column.name
            {
                column.origin = found.qualifier.clone().or_else(|| found.origin.clone());
            }
        }
        self
    }

    /// Keeps the rows for which `predicate` is true.
    pub(crate) fn filtered(self, predicate: Expr) -> Result<Self> {
        let plan = LogicalPlanBuilder::from(self.plan).filter(predicate).map_err(planning)?;
        Ok(Self { plan: plan.build().map_err(planning)?, scope: self.scope })
    }
}

/// Returns the requested name, or that name with a number appended when it is taken. `names` counts
/// how often each name was requested.
fn unique_name(names: &mut HashMap<String, usize>, requested: &str) -> String {
    loop {
        let count = names.entry(requested.to_owned()).or_insert(0);
        *count += 1;
        if *count == 1 {
            return requested.to_owned();
        }
        let numbered = format!("{requested}:{count}");
        if !names.contains_key(&numbered) {
            names.insert(numbered.clone(), 1);
            return numbered;
        }
    }
}

/// Converts the error of DataFusion about a plan that this crate built, which is a defect of this
/// crate.
#[expect(clippy::needless_pass_by_value, reason = "used as the argument of map_err")]
pub(crate) fn planning(error: DataFusionError) -> Box<Diagnostic> {
    Box::new(Diagnostic::internal(format!("the query could not be planned: {error}")))
}
