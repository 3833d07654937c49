//! Expressions: the binder from syntax to typed DataFusion expressions.
//!
//! Names are looked up in the [`NameScope`]; operators and functions are resolved by the
//! declarations of `function`. Calls of aggregates are bound by the [`Aggregates`] of the clause.

use std::{cell::RefCell, collections::HashMap};

use datafusion::{
    common::ScalarValue,
    logical_expr::{BinaryExpr, Case, Expr, Operator},
};
use lockstep_diagnostic::{Diagnostic, Result, Span, code, nearest};
use lockstep_function::{AggregateFunction, Compatibility, Settings, aggregate, cast, scalar};
use lockstep_row::{DataType, Value};
use lockstep_sql::ast::{self, BinaryOperator, ExprKind, LikeOperator, Literal, UnaryOperator};

use crate::{
    ClockRead, QuotedName, Written, call, comparison, elsewhere,
    literal::{literal, negate, scalar_value, type_of},
    rank::Numbering,
    scope::NameScope,
    select::item_of_alias,
    size::Size,
    sub_query::{not_here, only_query},
};

/// A typed expression.
#[derive(Debug, Clone)]
pub(crate) struct TypedExpr {
    pub(crate) expr: Expr,
    pub(crate) data_type: DataType,
    pub(crate) span: Span,
}

/// The part of the binder that binds calls of aggregates, which depends on the clause.
pub(crate) trait Aggregates {
    /// Returns whether a call with this OVER clause, or none, is an aggregate in this clause, where
    /// a scalar function has the same name.
    fn accepts(&self, over: Option<&ast::Over>) -> bool;
    /// Binds the call.
    fn bind(&mut self, call: &ast::Call, span: Span, scope: &NameScope) -> Result<TypedExpr>;
    /// Binds a call that is the whole of a select item; `None` where that makes no difference.
    fn bind_whole(
        &mut self,
        call: &ast::Call,
        span: Span,
        scope: &NameScope,
    ) -> Option<Result<TypedExpr>> {
        let _ = (call, span, scope);
        None
    }
    /// Binds a call of a function that numbers rows; `None` where there are no windows.
    fn bind_rank(
        &mut self,
        numbering: Numbering,
        call: &ast::Call,
        span: Span,
        scope: &NameScope,
    ) -> Option<Result<TypedExpr>> {
        let _ = (numbering, call, span, scope);
        None
    }
    /// Enters a call of a scalar function that carries OVER: aggregates below it use that window.
    fn enter(&mut self, over: &ast::Over) -> Result<()>;
    /// Ends the scope of the last `enter`.
    fn leave(&mut self);
}

/// The part of the binder that binds sub-queries in expressions.
pub(crate) trait SubQueries {
    /// Binds `operand IN (query)`.
    fn contains(&self, operand: TypedExpr, query: &ast::Query, span: Span) -> Result<TypedExpr>;
    /// Returns whether a name is a column of a query around this one.
    fn is_of_outer_query(&self, path: &[ast::Ident]) -> bool;
}

/// The binder of the expressions of one clause.
pub(crate) struct ExprBinder<'a> {
    pub(crate) scope: &'a NameScope,
    pub(crate) settings: Settings,
    pub(crate) parameters: &'a [(Value, DataType)],
    pub(crate) aggregates: Option<&'a mut dyn Aggregates>,
    /// Records the calls that read the clock, and the names in double quotes.
    pub(crate) written: Option<&'a RefCell<Written>>,
    /// Counts the expressions of the statement.
    pub(crate) size: &'a Size,
    /// The calls of `at` whose first argument is known not to be a list; `None` where there are no
    /// aggregates.
    pub(crate) non_list_calls: Option<&'a RefCell<NonListCalls>>,
    /// Binds sub-queries; `None` for an expression without tables.
    pub(crate) sub_queries: Option<&'a dyn SubQueries>,
    /// The items whose aliases may be used where there is no column of that name.
    pub(crate) aliased: &'a [ast::SelectItem],
    /// See [`BindOptions`](crate::BindOptions).
    pub(crate) as_postgres: bool,
}

/// The calls of `at` whose first argument is not a list, by position and scope. Their arguments are
/// bound a second time as those of an aggregate; without this cache, nested calls would be bound
/// twice at each level.
#[derive(Debug, Default)]
pub(crate) struct NonListCalls(HashMap<(Span, *const NameScope), NonList>);

/// Why the first argument of a call is not a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NonList {
    /// It has another type.
    Other,
    /// It cannot be bound.
    Failed,
}

impl ExprBinder<'_> {
    /// Binds one expression.
    pub(crate) fn bind(&mut self, expr: &ast::Expr) -> Result<TypedExpr> {
        self.size.add_expressions(1, expr.span)?;
        let bound = match &expr.kind {
            ExprKind::Column(path) => return self.column(path, expr.span),
            ExprKind::Literal(Literal::Interval(interval))
                if self.settings.compatibility == Compatibility::Standard =>
            {
                milliseconds(*interval, expr.span)?
            }
            ExprKind::Literal(value) => literal(value, expr.span)?,
            ExprKind::QuotedText(text) => self.quoted_text(text, expr.span)?,
            ExprKind::Parameter(index) => self.parameter(*index, expr.span)?,
            ExprKind::Unary { operator, operand } => self.unary(*operator, operand, expr.span)?,
            ExprKind::Binary { .. } => return self.binary_chain(expr),
            ExprKind::IsNull { operand, negated } => {
                let operand = Box::new(self.bind(operand)?.expr);
                let expr = if *negated { Expr::IsNotNull(operand) } else { Expr::IsNull(operand) };
                (expr, DataType::Bool)
            }
            ExprKind::Between { operand, negated, low, high } => {
                return self.between(operand, *negated, low, high, expr.span);
            }
            ExprKind::InList { operand, negated, items } => {
                return self.in_list(operand, *negated, items, expr.span);
            }
            ExprKind::Like { operator, operand, negated, pattern, escape } => {
                let name = match operator {
                    LikeOperator::Like => "op_like",
                    LikeOperator::ILike => "op_ilike",
                    LikeOperator::RLike => "op_rlike",
                };
                let mut arguments = vec![self.bind(operand)?, self.bind(pattern)?];
                if let Some(escape) = escape {
                    arguments.push(self.bind(escape)?);
                }
                let bound = call::operator(name, arguments, self.settings, expr.span)?;
                return if *negated { self.not(bound, expr.span) } else { Ok(bound) };
            }
            ExprKind::Case { operand, branches, otherwise } => {
                return self.case(operand.as_deref(), branches, otherwise.as_deref(), expr.span);
            }
            ExprKind::Cast { operand, to } => {
                check_typed_text(operand, to, self.settings)?;
                return self.cast(operand, to, expr.span);
            }
            ExprKind::Call(call) => return self.call(call, expr.span),
            ExprKind::Index { operand, index } => {
                let arguments = vec![self.bind(operand)?, self.bind(index)?];
                return call::operator("element_at", arguments, self.settings, expr.span);
            }
            ExprKind::SubQuery { .. } => {
                return not_here(expr.span).err();
            }
            ExprKind::Array { element, items } => {
                return self.array(element.as_ref(), items, expr.span);
            }
        };
        Ok(TypedExpr { expr: bound.0, data_type: bound.1, span: expr.span })
    }

    /// Binds a cast. As in standard SQL, one to VARCHAR(n) cuts a text off; OpenMLDB ignores the length.
    fn cast(&mut self, operand: &ast::Expr, to: &ast::TypeName, span: Span) -> Result<TypedExpr> {
        let data_type = type_of(to)?;
        let operand = self.bind(operand)?;
        let cast = call::cast(operand, &data_type, self.settings, span)?;
        let is_standard = self.settings.compatibility == Compatibility::Standard;
        let Some(length) = to.length.filter(|_| is_standard) else { return Ok(cast) };
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        let (expr, data_type) = literal(&Literal::Int(length), to.name.span)?;
        let length = TypedExpr { expr, data_type, span: to.name.span };
        self.scalar("left", vec![cast, length], span)
    }

    /// Binds a name: a column, or else an alias, or else a function that is called without parentheses.
    fn column(&mut self, path: &[ast::Ident], span: Span) -> Result<TypedExpr> {
        let missing = match self.scope.find(path) {
            Ok(column) => return Ok(column.expr(span)),
            Err(missing) => missing,
        };
        let aliased = item_of_alias(self.aliased, path);
        if let Some(aliased) = aliased.filter(|_| missing.code == code::UNDEFINED_COLUMN) {
            // An alias within it would be of a column.
            let aliases = std::mem::take(&mut self.aliased);
            let bound = self.bind(aliased);
            self.aliased = aliases;
            return bound;
        }
        if let Some(column) = self.scope.find_in_any_case(path).filter(|_| self.as_postgres) {
            return Ok(column.expr(span));
        }
        let is_call = |name: &&&str| matches!(path, [only] if only.text.eq_ignore_ascii_case(name));
        match ["current_timestamp", "current_date"].iter().find(is_call) {
            Some(name) => self.scalar(name, Vec::new(), span),
            None if self.sub_queries.is_some_and(|queries| queries.is_of_outer_query(path)) => {
                let parts: Vec<&str> = path.iter().map(|part| part.text.as_str()).collect();
                let message = format!(
                    "correlated subqueries are not supported: `{}` is a column of the outer query",
                    parts.join(".")
                );
                let error = Diagnostic::unsupported(message).at(span);
                error
                    .with_hint(
                        "Join the tables instead; LAST JOIN finds one matching row for each row.",
                    )
                    .err()
            }
            None => Err(missing),
        }
    }

    /// Binds a text in double quotes, which must not be the name of a column in scope.
    fn quoted_text(&self, text: &str, span: Span) -> Result<(Expr, DataType)> {
        if self.scope.has_name(text) {
            self.note_quoted_name(text, span)?;
        }
        literal(&Literal::String(text.to_owned()), span)
    }

    /// Refuses a text in double quotes that is also the name of a column; with `compatibility =
    /// 'openmldb'`, records it for the lints.
    pub(crate) fn note_quoted_name(&self, text: &str, span: Span) -> Result<()> {
        if self.settings.compatibility == Compatibility::Standard {
            return Err(Box::new(quoted_name(text, span)));
        }
        if let Some(written) = self.written {
            let noted = QuotedName { span, name: text.to_owned() };
            let known = &mut written.borrow_mut().quoted_names;
            if !known.contains(&noted) {
                known.push(noted);
            }
        }
        Ok(())
    }

    /// Binds a condition and converts its value to BOOL.
    pub(crate) fn condition(&mut self, expr: &ast::Expr) -> Result<TypedExpr> {
        let bound = self.bind(expr)?;
        self.truth(bound)
    }

    fn truth(&self, bound: TypedExpr) -> Result<TypedExpr> {
        let span = bound.span;
        match bound.data_type {
            DataType::Bool => Ok(bound),
            DataType::Null => call::cast(bound, &DataType::Bool, self.settings, span),
            _ => call::operator("to_bool", vec![bound], self.settings, span),
        }
    }

    fn not(&self, bound: TypedExpr, span: Span) -> Result<TypedExpr> {
        let operand = self.truth(bound)?;
        Ok(TypedExpr { expr: Expr::Not(Box::new(operand.expr)), data_type: DataType::Bool, span })
    }

    fn parameter(&self, index: usize, span: Span) -> Result<(Expr, DataType)> {
        let Some((value, data_type)) = self.parameters.get(index) else {
            let found = self.parameters.len();
            let message =
                format!("missing value for parameter {}; values supplied: {found}", index + 1);
            return Diagnostic::new(code::INVALID_PARAMETER, message).at(span).err();
        };
        Ok((Expr::Literal(scalar_value(value, data_type), None), data_type.clone()))
    }

    fn unary(
        &mut self,
        operator: UnaryOperator,
        operand: &ast::Expr,
        span: Span,
    ) -> Result<(Expr, DataType)> {
        if let (UnaryOperator::Minus, ExprKind::Literal(value)) = (operator, &operand.kind)
            && let Some(negated) = negate(value)
        {
            return literal(&negated, span);
        }
        let operand = self.bind(operand)?;
        let bound = match operator {
            UnaryOperator::Not => self.not(operand, span)?,
            UnaryOperator::Plus => call::operator("op_plus", vec![operand], self.settings, span)?,
            UnaryOperator::Minus => {
                call::operator("op_negate", vec![operand], self.settings, span)?
            }
            UnaryOperator::BitNot => {
                call::operator("op_bit_not", vec![operand], self.settings, span)?
            }
        };
        Ok((bound.expr, bound.data_type))
    }

    /// Binds a left-deep chain of binary operators without recursing into its depth.
    fn binary_chain(&mut self, expr: &ast::Expr) -> Result<TypedExpr> {
        let mut operators = Vec::new();
        let mut at = expr;
        while let ExprKind::Binary { operator, left, right } = &at.kind {
            operators.push((*operator, right.as_ref(), at.span));
            at = left;
        }
        let mut bound = self.bind(at)?;
        while let Some((operator, right, span)) = operators.pop() {
            let right = self.bind(right)?;
            bound = self.binary(operator, bound, right, span)?;
        }
        Ok(bound)
    }

    fn binary(
        &self,
        operator: BinaryOperator,
        l: TypedExpr,
        r: TypedExpr,
        span: Span,
    ) -> Result<TypedExpr> {
        let name = match operator {
            BinaryOperator::And => return self.logic(Operator::And, l, r, span),
            BinaryOperator::Or => return self.logic(Operator::Or, l, r, span),
            BinaryOperator::Xor => {
                let arguments = vec![self.truth(l)?, self.truth(r)?];
                return call::operator("op_xor", arguments, self.settings, span);
            }
            BinaryOperator::Equal => return self.compare(Operator::Eq, l, r, span),
            BinaryOperator::NotEqual => return self.compare(Operator::NotEq, l, r, span),
            BinaryOperator::Less => return self.compare(Operator::Lt, l, r, span),
            BinaryOperator::LessOrEqual => return self.compare(Operator::LtEq, l, r, span),
            BinaryOperator::Greater => return self.compare(Operator::Gt, l, r, span),
            BinaryOperator::GreaterOrEqual => return self.compare(Operator::GtEq, l, r, span),
            BinaryOperator::Add => "op_add",
            BinaryOperator::Subtract => "op_subtract",
            BinaryOperator::Multiply => "op_multiply",
            BinaryOperator::Divide => "op_divide",
            BinaryOperator::IntegerDivide => "op_int_divide",
            BinaryOperator::Modulo => "op_modulo",
            BinaryOperator::BitAnd => "op_bit_and",
            BinaryOperator::BitOr => "op_bit_or",
            BinaryOperator::BitXor => "op_bit_xor",
            BinaryOperator::Concat => "op_concat",
        };
        call::operator(name, vec![l, r], self.settings, span)
    }

    fn logic(
        &self,
        operator: Operator,
        l: TypedExpr,
        r: TypedExpr,
        span: Span,
    ) -> Result<TypedExpr> {
        let (l, r) = (self.truth(l)?, self.truth(r)?);
        Ok(TypedExpr { expr: binary(l.expr, operator, r.expr), data_type: DataType::Bool, span })
    }

    pub(crate) fn compare(
        &self,
        op: Operator,
        l: TypedExpr,
        r: TypedExpr,
        span: Span,
    ) -> Result<TypedExpr> {
        let (l, r) = match self.as_postgres {
            true => comparison::with_midnight(l, r, self.settings)?,
            false => (l, r),
        };
        comparison::comparison(op, l, r, self.settings, span)
    }

    fn between(
        &mut self,
        operand: &ast::Expr,
        negated: bool,
        low: &ast::Expr,
        high: &ast::Expr,
        span: Span,
    ) -> Result<TypedExpr> {
        let operand = self.bind(operand)?;
        let (low, high) = (self.bind(low)?, self.bind(high)?);
        if !self.may_copy(&operand, 2)? {
            let name = if negated { "op_not_between" } else { "op_between" };
            let ends = self.beside(&operand, vec![low, high], span)?;
            let arguments = std::iter::once(operand).chain(ends).collect();
            return call::operator(name, arguments, self.settings, span);
        }
        let (below, above, both) = if negated {
            (Operator::Lt, Operator::Gt, Operator::Or)
        } else {
            (Operator::GtEq, Operator::LtEq, Operator::And)
        };
        let below = self.compare(below, operand.clone(), low, span)?;
        let above = self.compare(above, operand, high, span)?;
        self.logic(both, below, above, span)
    }

    /// Binds IN as an OR of equalities, in a balanced tree, so that its depth is logarithmic.
    fn in_list(
        &mut self,
        operand: &ast::Expr,
        negated: bool,
        items: &[ast::Expr],
        span: Span,
    ) -> Result<TypedExpr> {
        let operand = self.bind(operand)?;
        if let (Some(query), Some(sub_queries)) = (only_query(items), self.sub_queries) {
            let bound = sub_queries.contains(operand, query, span)?;
            return if negated { self.not(bound, span) } else { Ok(bound) };
        }
        let items = items.iter().map(|item| self.bind(item)).collect::<Result<Vec<_>>>()?;
        if !self.may_copy(&operand, items.len())? {
            let items = self.beside(&operand, items, span)?;
            let arguments = std::iter::once(operand).chain(items).collect();
            let bound = call::operator("op_in", arguments, self.settings, span)?;
            return if negated { self.not(bound, span) } else { Ok(bound) };
        }
        let mut level = Vec::with_capacity(items.len());
        for item in items {
            level.push(self.compare(Operator::Eq, operand.clone(), item, span)?.expr);
        }
        while level.len() > 1 {
            let mut pairs = level.into_iter();
            let mut next = Vec::new();
            while let Some(left) = pairs.next() {
                next.push(match pairs.next() {
                    Some(right) => binary(left, Operator::Or, right),
                    None => left,
                });
            }
            level = next;
        }
        let expr = level.pop().expect("the parser requires at least one item");
        let bound = TypedExpr { expr, data_type: DataType::Bool, span };
        if negated { self.not(bound, span) } else { Ok(bound) }
    }

    /// Returns whether an operand is small enough to be copied into `count` comparisons, and counts
    /// the copies.
    fn may_copy(&self, operand: &TypedExpr, count: usize) -> Result<bool> {
        let Some(size) = comparison::small_size(operand) else { return Ok(false) };
        self.size.add_expressions(size.saturating_mul(count), operand.span)?;
        Ok(true)
    }

    /// Converts the constant STRINGs among `others` to the type of the operand.
    fn beside(
        &self,
        operand: &TypedExpr,
        others: Vec<TypedExpr>,
        span: Span,
    ) -> Result<Vec<TypedExpr>> {
        let agreed = others.into_iter().map(|other| {
            Ok(comparison::agree(operand.without_expr(), other, self.settings, span)?.1)
        });
        agreed.collect()
    }

    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        branches: &[(ast::Expr, ast::Expr)],
        otherwise: Option<&ast::Expr>,
        span: Span,
    ) -> Result<TypedExpr> {
        let operand = operand.map(|operand| self.bind(operand)).transpose()?;
        let mut conditions = Vec::new();
        let mut results = Vec::new();
        for (when, then) in branches {
            conditions.push(match &operand {
                Some(_) => self.bind(when)?,
                None => self.condition(when)?,
            });
            results.push(self.bind(then)?);
        }
        if let Some(otherwise) = otherwise {
            results.push(self.bind(otherwise)?);
        }
        let to = call::common_type(results.iter().map(|result| &result.data_type));
        let mut results = results
            .into_iter()
            .map(|result| call::cast(result, &to, self.settings, span))
            .collect::<Result<Vec<_>>>()?;
        let conditions = match operand {
            None => conditions,
            Some(operand) if self.may_copy(&operand, conditions.len())? => conditions
                .into_iter()
                .map(|when| self.compare(Operator::Eq, operand.clone(), when, span))
                .collect::<Result<_>>()?,
            Some(operand) => {
                let values = self.beside(&operand, conditions, span)?;
                let otherwise = otherwise.and_then(|_| results.pop());
                let pairs = values.into_iter().zip(results).flat_map(|(when, then)| [when, then]);
                let arguments = std::iter::once(operand).chain(pairs).chain(otherwise).collect();
                return call::operator("op_case", arguments, self.settings, span);
            }
        };
        let else_expr = otherwise.and_then(|_| results.pop()).map(|bound| Box::new(bound.expr));
        let boxed = |bound: TypedExpr| Box::new(bound.expr);
        let when_then_expr = conditions.into_iter().map(boxed).zip(results.into_iter().map(boxed));
        let case = Case { expr: None, when_then_expr: when_then_expr.collect(), else_expr };
        Ok(TypedExpr { expr: Expr::Case(case), data_type: to, span })
    }

    fn array(
        &mut self,
        element: Option<&ast::TypeName>,
        items: &[ast::Expr],
        span: Span,
    ) -> Result<TypedExpr> {
        let mut bound = items.iter().map(|item| self.bind(item)).collect::<Result<Vec<_>>>()?;
        if let Some(element) = element {
            let to = type_of(element)?;
            bound = bound
                .into_iter()
                .map(|item| call::cast(item, &to, self.settings, span))
                .collect::<Result<_>>()?;
        }
        call::operator("array", bound, self.settings, span)
    }

    /// Binds the first argument of `at(list, n)`, which without a window means `list[n]`.
    fn list_of(&mut self, call: &ast::Call, span: Span) -> std::result::Result<TypedExpr, NonList> {
        let [list, _] = call.arguments.as_slice() else { return Err(NonList::Other) };
        if call.over.is_some() || !call.name.text.eq_ignore_ascii_case("at") {
            return Err(NonList::Other);
        }
        let place = (span, std::ptr::from_ref(self.scope));
        let known = self.non_list_calls.and_then(|known| known.borrow().0.get(&place).copied());
        if let Some(known) = known {
            return Err(known);
        }
        let found = match self.bind(list) {
            Ok(list) if matches!(list.data_type, DataType::Array(_)) => return Ok(list),
            Ok(_) => NonList::Other,
            Err(_) => NonList::Failed,
        };
        if let Some(known) = self.non_list_calls {
            known.borrow_mut().0.insert(place, found);
        }
        Err(found)
    }

    fn call(&mut self, call: &ast::Call, span: Span) -> Result<TypedExpr> {
        if let Some(numbering) = Numbering::of(call, self.settings.compatibility) {
            let aggregates = self.aggregates.as_deref_mut();
            let bound = aggregates.and_then(|all| all.bind_rank(numbering, call, span, self.scope));
            return bound.unwrap_or_else(|| call::misplaced(call, false, span));
        }
        let is_scalar = scalar::find(&call.name.text).is_some();
        let is_aggregate = aggregate::find(&call.name.text).is_some();
        if is_aggregate
            && let Some(aggregates) = self.aggregates.as_deref_mut()
            && (!is_scalar || aggregates.accepts(call.over.as_ref()))
        {
            // `at` is an aggregate over rows and a function of lists: the arguments decide which.
            let non_list = match self.list_of(call, span) {
                Ok(list) => {
                    let arguments = vec![list, self.bind(&call.arguments[1])?];
                    return call::operator("element_at", arguments, self.settings, span);
                }
                Err(reason) => reason,
            };
            let aggregates = self.aggregates.as_deref_mut().expect("there were some above");
            let bound = aggregates.bind(call, span, self.scope);
            if bound.is_ok() || !is_scalar || non_list == NonList::Failed {
                return bound;
            }
            return self.scalar_call(call, span).or(bound);
        }
        if !is_scalar && is_aggregate {
            return call::misplaced(call, false, span);
        }
        if !is_scalar {
            return self.unknown(call);
        }
        if call.star || call.distinct {
            let message = format!("function `{}` does not accept `*` or DISTINCT", call.name.text);
            return Diagnostic::new(code::SYNTAX_ERROR, message).at(span).err();
        }
        self.scalar_call(call, span)
    }

    /// Returns the error of a call of a function that does not exist; it proposes a function of a similar
    /// name only if that takes these arguments.
    fn unknown(&mut self, call: &ast::Call) -> Result<TypedExpr> {
        let name = &call.name.text;
        let message = format!("function `{name}` does not exist");
        let unknown = Diagnostic::new(code::UNDEFINED_FUNCTION, message).at(call.name.span);
        if let Some(hint) = elsewhere::hint(name) {
            return unknown.with_hint(hint).err();
        }
        let arguments = call.arguments.iter().map(|argument| self.bind(argument).ok());
        let arguments: Option<Vec<TypedExpr>> = arguments.collect();
        let takes = |other: &&str| {
            let is_near = nearest(name, [*other]).is_some();
            let has_aggregates = self.aggregates.is_some();
            is_near
                && arguments.as_deref().is_none_or(|arguments| {
                    call::takes(other, call, arguments, self.settings, has_aggregates)
                })
        };
        let aggregates = aggregate::all().flat_map(AggregateFunction::names);
        unknown.with_nearest(name, scalar::names().chain(aggregates).filter(takes)).err()
    }

    fn scalar_call(&mut self, call: &ast::Call, span: Span) -> Result<TypedExpr> {
        if let Some(format) = scalar::feature::format(&call.name.text) {
            return self
                .within(call.over.as_ref(), |binder| binder.format_call(format, call, span));
        }
        let arguments = self.arguments(call)?;
        self.scalar(&call.name.text, arguments, span)
    }

    /// Binds a call of a scalar function that exists.
    fn scalar(&self, name: &str, arguments: Vec<TypedExpr>, span: Span) -> Result<TypedExpr> {
        if let (Some(written), Some(name)) = (self.written, scalar::clock_reader(name)) {
            written.borrow_mut().clock_reads.push(ClockRead { span, name });
        }
        call::scalar(name, arguments, self.settings, span)
    }

    /// Binds the arguments of a scalar call; under OVER, aggregates in them use that window.
    pub(crate) fn arguments(&mut self, call: &ast::Call) -> Result<Vec<TypedExpr>> {
        self.within(call.over.as_ref(), |binder| {
            call.arguments.iter().map(|argument| binder.bind(argument)).collect()
        })
    }

    /// Binds something whose aggregates without OVER are over a window, if one is given.
    pub(crate) fn within<T>(
        &mut self,
        over: Option<&ast::Over>,
        bind: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let Some(over) = over else { return bind(self) };
        let Some(aggregates) = self.aggregates.as_deref_mut() else {
            let message = "window aggregates are not allowed here";
            return Diagnostic::new(code::WINDOWING_ERROR, message).at(over.span()).err();
        };
        aggregates.enter(over)?;
        let bound = bind(self);
        self.aggregates.as_deref_mut().expect("it was entered").leave();
        bound
    }
}

impl TypedExpr {
    /// Returns a copy with a NULL instead of the expression, which may be large.
    fn without_expr(&self) -> Self {
        let expr = Expr::Literal(ScalarValue::Null, None);
        Self { expr, data_type: self.data_type.clone(), span: self.span }
    }
}

/// Returns the error of a text in double quotes that is also the name of a column.
pub fn quoted_name(text: &str, span: Span) -> Diagnostic {
    let message = format!("\"{text}\" is ambiguous: it can be a string or a column");
    Diagnostic::new(code::AMBIGUOUS_COLUMN, message)
        .at(span)
        .with_hint(format!("Write '{text}' for the string, or `{text}` for the column."))
}

/// Builds a native binary expression.
pub(crate) fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// Returns an interval as its milliseconds, which a TIMESTAMP plus or minus a number means.
fn milliseconds(interval: ast::Interval, span: Span) -> Result<(Expr, DataType)> {
    match interval.milliseconds() {
        Some(value) => literal(&Literal::BigInt(value), span),
        None => Diagnostic::internal("a duration that is too long was parsed").at(span).err(),
    }
}

/// Fails for a text after a type, `DATE '2024-02-30'`, that is no value of it; a CAST would be NULL.
fn check_typed_text(operand: &ast::Expr, to: &ast::TypeName, settings: Settings) -> Result<()> {
    let ExprKind::Literal(Literal::String(text)) = &operand.kind else { return Ok(()) };
    if to.name.span.start >= operand.span.start {
        return Ok(());
    }
    let (is_value, example) = match type_of(to)? {
        DataType::Date => (cast::parse_date(text, &settings).is_some(), "2024-01-31"),
        _ => (cast::parse_timestamp(text, &settings).is_some(), "2024-01-31 12:00:00"),
    };
    if is_value {
        return Ok(());
    }
    let message =
        format!("invalid input syntax for type {}: '{text}'", to.name.text.to_uppercase());
    Diagnostic::new(code::DATATYPE_MISMATCH, message)
        .at(operand.span)
        .with_hint(format!("Write the value as '{example}'."))
        .err()
}
