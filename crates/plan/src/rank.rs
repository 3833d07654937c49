//! The functions of standard SQL that number the rows of a window: `row_number`, `rank` and
//! `dense_rank`. Each is a count of the rows up to the current one, whatever the frame of the window, so
//! that it needs no row that comes later.
//!
//! `WindowCalls` binds them as the aggregates that they are.

use lockstep_diagnostic::{Diagnostic, Result, Span, code};
use lockstep_function::Compatibility;
use lockstep_sql::ast;

use crate::{Frame, Window};

/// A function that numbers rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// `row_number()`: how many rows there are up to this one.
    RowNumber,
    /// `rank()`: 1 and how many rows there are before the time of this one.
    Rank,
    /// `dense_rank()`: how many different times there are up to this one.
    DenseRank,
}

impl Numbering {
    /// Returns the function of a call over a window; `None` for any other, and in OpenMLDB's dialect.
    pub(crate) fn of(call: &ast::Call, compatibility: Compatibility) -> Option<Self> {
        if call.over.is_none() || compatibility == Compatibility::OpenMldb {
            return None;
        }
        match call.name.text.to_ascii_lowercase().as_str() {
            "row_number" => Some(Self::RowNumber),
            "rank" => Some(Self::Rank),
            "dense_rank" => Some(Self::DenseRank),
            _ => None,
        }
    }

    /// Returns the window whose rows are counted.
    pub(crate) fn window(self, of: &Window) -> Window {
        Window {
            frame: Frame::Rows { from: None, to: 0 },
            ahead: None,
            max_size: None,
            exclude_current_row: false,
            // The other rows of the same time: what is left is those before, and this one.
            exclude_current_time: self == Self::Rank,
            ..of.clone()
        }
    }

    /// Returns the aggregate over that window; `order_by` is the window's order as written.
    pub(crate) fn aggregate(
        self,
        call: &ast::Call,
        order_by: &[ast::OrderBy],
        span: Span,
    ) -> Result<ast::Call> {
        let name = &call.name.text;
        if !call.arguments.is_empty() || call.star || call.distinct {
            let message = format!("function `{name}` does not accept arguments");
            return Diagnostic::new(code::SYNTAX_ERROR, message)
                .at(span)
                .with_hint(format!("Write {name}() OVER (PARTITION BY key ORDER BY time)."))
                .err();
        }
        let order = order_by.first().filter(|_| self != Self::RowNumber);
        if order.is_none() && self != Self::RowNumber {
            let message = format!("function `{name}` requires a window with ORDER BY");
            return Diagnostic::new(code::WINDOWING_ERROR, message).at(span).err();
        }
        let text = match self {
            Self::RowNumber | Self::Rank => "count",
            Self::DenseRank => "distinct_count",
        };
        let argument = order.filter(|_| self == Self::DenseRank).map(|order| order.expr.clone());
        Ok(ast::Call {
            name: ast::Ident { text: text.to_owned(), span: call.name.span },
            star: argument.is_none(),
            arguments: argument.into_iter().collect(),
            ..call.clone()
        })
    }
}
