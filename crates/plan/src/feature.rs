//! `gcformat`, `csv` and `libsvm` over feature signatures: bound as one call over plain values.
//!
//! A signature that is a whole item of a select list is a column with a role.
//!
//! [`ExprBinder`] calls it for a call of a format. A signature such as `discrete(x, 100)` is
//! resolved here; the plan has a call of the format with the arguments of all its signatures, one
//! after the other.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::{
    CallArguments, ScalarFunction,
    scalar::{
        feature::{self, Feature},
        feature_role,
    },
    udf,
};
use lockstep_row::{DataType, Value};
use lockstep_sql::ast::{self, ExprKind};

use crate::{
    call,
    expression::{ExprBinder, TypedExpr},
    literal::constant,
};

impl ExprBinder<'_> {
    /// Binds a call of a format.
    pub(crate) fn format_call(
        &mut self,
        format: &'static ScalarFunction,
        call: &ast::Call,
        span: Span,
    ) -> Result<TypedExpr> {
        let mut features = Vec::with_capacity(call.arguments.len());
        let mut values = Vec::new();
        for (position, argument) in call.arguments.iter().enumerate() {
            let (feature, own) = self.feature(format, position, argument)?;
            features.push(feature);
            values.extend(own);
        }
        let implementation = feature::resolve_format(format, &features, &self.settings)
            .map_err(|error| {
                let at = call.arguments.get(error.position).map_or(span, |argument| argument.span);
                let message = format!("function `{}`: {error}", format.name);
                Diagnostic::new(code::INVALID_PARAMETER, message).at(at).with_hint(
                    "Keep only one of them; with compatibility = 'openmldb', the last one is used.",
                )
            })
            .map_err(Box::new)?;
        let constants: Vec<Option<Value>> = values.iter().map(|v| constant(&v.expr)).collect();
        let arguments = call::cast_all(values, &implementation.parameters, self.settings)?;
        let shape: Vec<String> = features.iter().map(ToString::to_string).collect();
        let name = format!("{}[{}]", format.name, shape.join(" "));
        let expr = udf::scalar_call(&name, implementation, &constants, &self.settings, arguments);
        Ok(TypedExpr { expr, data_type: DataType::String, span })
    }

    /// Binds a call of a signature that is a whole item of a select list.
    pub(crate) fn feature_column(
        &mut self,
        signature: &'static ScalarFunction,
        call: &ast::Call,
        span: Span,
    ) -> Result<TypedExpr> {
        let values = self.arguments(call)?;
        let types: Vec<DataType> = values.iter().map(|value| value.data_type.clone()).collect();
        let constants: Vec<Option<Value>> = values.iter().map(|v| constant(&v.expr)).collect();
        let with = CallArguments { types: &types, constants: &constants, settings: &self.settings };
        let (role, implementation) =
            feature_role::resolve_column(signature, &with).map_err(|error| {
                let shown = format!("function `{}`", signature.name);
                Box::new(call::signature(&shown, &error, &values, signature.signature, span))
            })?;
        let data_type = implementation.returns.clone();
        let arguments = call::cast_all(values, &implementation.parameters, self.settings)?;
        let name = role.to_string();
        let expr = udf::scalar_call(&name, implementation, &constants, &self.settings, arguments);
        Ok(TypedExpr { expr, data_type, span })
    }

    /// Binds one argument of a format, which must be a call of a signature function.
    fn feature(
        &mut self,
        format: &ScalarFunction,
        position: usize,
        argument: &ast::Expr,
    ) -> Result<(Feature, Vec<TypedExpr>)> {
        let signature = match &argument.kind {
            ExprKind::Call(call) if !call.star && !call.distinct => {
                feature::signature(&call.name.text).map(|signature| (signature, call))
            }
            _ => None,
        };
        let Some((signature, call)) = signature else {
            let (name, number) = (format.name, position + 1);
            let message = format!("function `{name}`: argument {number} must be a feature");
            return Diagnostic::new(code::DATATYPE_MISMATCH, message)
                .at(argument.span)
                .with_hint(
                    "Wrap the argument in continuous(…), discrete(…), binary_label(…), \
                     multiclass_label(…) or regression_label(…).",
                )
                .err();
        };
        let values = self.arguments(call)?;
        let types: Vec<DataType> = values.iter().map(|value| value.data_type.clone()).collect();
        let constants: Vec<Option<Value>> = values.iter().map(|v| constant(&v.expr)).collect();
        let with = CallArguments { types: &types, constants: &constants, settings: &self.settings };
        let feature = feature::feature(signature, &with).map_err(|error| {
            let shown = format!("function `{}`", signature.name);
            Box::new(call::signature(&shown, &error, &values, signature.signature, argument.span))
        })?;
        Ok((feature, values))
    }
}
