//! From operations to instructions.
//!
//! A value is a pair: its bits, and whether it is NULL. Nothing branches and nothing traps, so
//! every branch of a CASE is computed and one is selected; equal subtrees are emitted once. The
//! bits of a NULL are those that came of the computation, and nobody looks at them.

use std::collections::HashMap;

use cranelift_codegen::ir::{
    InstBuilder, Type, Value,
    condcodes::{FloatCC, IntCC},
    immediates::{Ieee32, Ieee64},
    types,
};
use cranelift_frontend::FunctionBuilder;

use super::expression::{Arithmetic, Comparison, Kind, Node};

/// A machine value. BOOLs are 0 or 1 in 8 bits, integers 64 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Typed {
    pub(super) bits: Value,
    /// 1 for NULL, in 8 bits; `None` where it cannot be.
    pub(super) null: Option<Value>,
}

/// Emits into one block.
pub(super) struct Emitter<'e, 'f> {
    pub(super) builder: &'e mut FunctionBuilder<'f>,
    /// Values of the columns.
    pub(super) columns: HashMap<usize, Typed>,
    /// What was emitted already.
    seen: HashMap<Node, Typed>,
}

pub(super) fn machine_type(kind: Kind) -> Type {
    match kind {
        Kind::Bool => types::I8,
        Kind::Float => types::F32,
        Kind::Double => types::F64,
        _ => types::I64,
    }
}

impl<'e, 'f> Emitter<'e, 'f> {
    pub(super) fn new(
        builder: &'e mut FunctionBuilder<'f>,
        columns: HashMap<usize, Typed>,
    ) -> Self {
        Self { builder, columns, seen: HashMap::new() }
    }

    pub(super) fn emit(&mut self, node: &Node) -> Typed {
        if let Some(typed) = self.seen.get(node) {
            return *typed;
        }
        let typed = self.emit_new(node);
        self.seen.insert(node.clone(), typed);
        typed
    }

    fn emit_new(&mut self, node: &Node) -> Typed {
        match node {
            Node::Column(column, _) => self.columns[column],
            Node::Constant(kind, bits) => {
                let null = bits.is_none().then(|| self.byte(1));
                Typed { bits: self.constant(*kind, bits.unwrap_or(0)), null }
            }
            Node::And(sides) => self.logic(sides, false),
            Node::Or(sides) => self.logic(sides, true),
            Node::Not(operand) => {
                let operand = self.emit(operand);
                let one = self.byte(1);
                Typed { bits: self.builder.ins().bxor(operand.bits, one), null: operand.null }
            }
            Node::IsNull(operand) => {
                let operand = self.emit(operand);
                let bits = operand.null.unwrap_or_else(|| self.byte(0));
                Typed { bits, null: None }
            }
            Node::Select(_, parts) => {
                let [condition, yes, no] = parts.as_ref();
                let condition = self.emit(condition);
                let is_true = self.is_true(condition);
                let (yes, no) = (self.emit(yes), self.emit(no));
                self.select(is_true, yes, no)
            }
            Node::Coalesce(kind, parts) => {
                let mut parts = parts.iter().rev();
                let last = match parts.next() {
                    Some(last) => self.emit(last),
                    None => self.emit(&Node::Constant(*kind, None)),
                };
                parts.fold(last, |rest, part| {
                    let part = self.emit(part);
                    match part.null {
                        None => part,
                        Some(null) => self.select(null, rest, part),
                    }
                })
            }
            Node::Arithmetic(operation, kind, sides) => {
                let [left, right] = sides.as_ref();
                let (left_kind, right_kind) = (left.kind(), right.kind());
                let (left, right) = (self.emit(left), self.emit(right));
                match kind {
                    Kind::Float => self.float_arithmetic(*operation, left, right),
                    Kind::Double => {
                        let left = self.as_double(left_kind, left);
                        let right = self.as_double(right_kind, right);
                        self.float_arithmetic(*operation, left, right)
                    }
                    _ => self.integer_arithmetic(*operation, *kind, left, right),
                }
            }
            Node::Compare(comparison, sides) => self.compare(*comparison, sides),
            Node::Negate(kind, operand) => {
                let operand = self.emit(operand);
                self.negate(*kind, operand)
            }
            Node::Cast(to, operand) => {
                let from = operand.kind();
                let operand = self.emit(operand);
                self.cast(from, *to, operand)
            }
        }
    }

    /// Both sides of a comparison, brought to DOUBLE where one is a float.
    fn sides(&mut self, sides: &[Node; 2]) -> [Typed; 2] {
        let [left, right] = sides;
        let (left_kind, right_kind) = (left.kind(), right.kind());
        let (left, right) = (self.emit(left), self.emit(right));
        let is_float = |kind: Kind| matches!(kind, Kind::Float | Kind::Double);
        if !is_float(left_kind) && !is_float(right_kind) {
            return [left, right];
        }
        [self.as_double(left_kind, left), self.as_double(right_kind, right)]
    }

    fn as_double(&mut self, kind: Kind, typed: Typed) -> Typed {
        let bits = match kind {
            Kind::Double => typed.bits,
            Kind::Float => self.builder.ins().fpromote(types::F64, typed.bits),
            _ => self.builder.ins().fcvt_from_sint(types::F64, typed.bits),
        };
        Typed { bits, ..typed }
    }

    fn byte(&mut self, value: i64) -> Value {
        self.builder.ins().iconst(types::I8, value)
    }

    fn word(&mut self, value: i64) -> Value {
        self.builder.ins().iconst(types::I64, value)
    }

    fn constant(&mut self, kind: Kind, bits: u64) -> Value {
        match kind {
            Kind::Bool => self.byte(bits.cast_signed()),
            Kind::Float => {
                let bits = u32::try_from(bits).expect("the bits of a FLOAT are 32");
                self.builder.ins().f32const(Ieee32::with_bits(bits))
            }
            Kind::Double => self.builder.ins().f64const(Ieee64::with_bits(bits)),
            _ => self.word(bits.cast_signed()),
        }
    }

    fn either(&mut self, left: Option<Value>, right: Option<Value>) -> Option<Value> {
        match (left, right) {
            (Some(left), Some(right)) => Some(self.builder.ins().bor(left, right)),
            (left, right) => left.or(right),
        }
    }

    fn select(&mut self, condition: Value, yes: Typed, no: Typed) -> Typed {
        let bits = self.builder.ins().select(condition, yes.bits, no.bits);
        let null = match (yes.null, no.null) {
            (None, None) => None,
            (yes, no) => {
                let yes = yes.unwrap_or_else(|| self.byte(0));
                let no = no.unwrap_or_else(|| self.byte(0));
                Some(self.builder.ins().select(condition, yes, no))
            }
        };
        Typed { bits, null }
    }

    /// 1 where a BOOL is true, not NULL.
    pub(super) fn is_true(&mut self, typed: Typed) -> Value {
        match typed.null {
            None => typed.bits,
            Some(null) => self.builder.ins().band_not(typed.bits, null),
        }
    }

    /// 1 where a value is not NULL.
    pub(super) fn present(&mut self, typed: Typed) -> Value {
        let one = self.byte(1);
        match typed.null {
            Some(null) => self.builder.ins().bxor(null, one),
            None => one,
        }
    }

    /// 1 where a number is not zero.
    pub(super) fn is_nonzero(&mut self, kind: Kind, typed: Typed) -> Value {
        let zero = self.constant(kind, 0);
        match kind {
            Kind::Float | Kind::Double => {
                self.builder.ins().fcmp(FloatCC::NotEqual, typed.bits, zero)
            }
            _ => self.builder.ins().icmp(IntCC::NotEqual, typed.bits, zero),
        }
    }

    /// A value in the 64 bits that a lane has for it.
    pub(super) fn widened(&mut self, kind: Kind, typed: Typed) -> Value {
        match kind {
            Kind::Bool => self.builder.ins().uextend(types::I64, typed.bits),
            Kind::Float => self.builder.ins().fpromote(types::F64, typed.bits),
            _ => typed.bits,
        }
    }

    /// AND (`decisive` false) and OR: a decisive side decides, else NULL wins.
    fn logic(&mut self, sides: &[Node; 2], decisive: bool) -> Typed {
        let (left, right) = (self.emit(&sides[0]), self.emit(&sides[1]));
        let bits = if decisive {
            let (left, right) = (self.is_true(left), self.is_true(right));
            self.builder.ins().bor(left, right)
        } else {
            self.builder.ins().band(left.bits, right.bits)
        };
        let Some(either) = self.either(left.null, right.null) else {
            return Typed { bits, null: None };
        };
        let left_decides = self.decides(left, decisive);
        let right_decides = self.decides(right, decisive);
        let decided = self.builder.ins().bor(left_decides, right_decides);
        let null = self.builder.ins().band_not(either, decided);
        let bits = if decisive { bits } else { self.builder.ins().band_not(bits, decided) };
        Typed { bits, null: Some(null) }
    }

    fn decides(&mut self, side: Typed, decisive: bool) -> Value {
        if decisive {
            return self.is_true(side);
        }
        let one = self.byte(1);
        let is_false = self.builder.ins().bxor(side.bits, one);
        self.is_true(Typed { bits: is_false, null: side.null })
    }

    fn compare(&mut self, comparison: Comparison, sides: &[Node; 2]) -> Typed {
        let kinds = [sides[0].kind(), sides[1].kind()];
        let is_float = |kind: &Kind| matches!(kind, Kind::Float | Kind::Double);
        let [left, right] = self.sides(sides);
        let null = self.either(left.null, right.null);
        let bits = if kinds.iter().any(is_float) {
            let condition = match comparison {
                Comparison::Equal => FloatCC::Equal,
                Comparison::NotEqual => FloatCC::NotEqual,
                Comparison::Less => FloatCC::LessThan,
                Comparison::LessOrEqual => FloatCC::LessThanOrEqual,
                Comparison::Greater => FloatCC::GreaterThan,
                Comparison::GreaterOrEqual => FloatCC::GreaterThanOrEqual,
            };
            self.builder.ins().fcmp(condition, left.bits, right.bits)
        } else {
            let condition = match comparison {
                Comparison::Equal => IntCC::Equal,
                Comparison::NotEqual => IntCC::NotEqual,
                Comparison::Less => IntCC::SignedLessThan,
                Comparison::LessOrEqual => IntCC::SignedLessThanOrEqual,
                Comparison::Greater => IntCC::SignedGreaterThan,
                Comparison::GreaterOrEqual => IntCC::SignedGreaterThanOrEqual,
            };
            self.builder.ins().icmp(condition, left.bits, right.bits)
        };
        Typed { bits, null }
    }

    fn float_arithmetic(&mut self, operation: Arithmetic, left: Typed, right: Typed) -> Typed {
        let mut null = self.either(left.null, right.null);
        let (left, right) = (left.bits, right.bits);
        let bits = match operation {
            Arithmetic::Add => self.builder.ins().fadd(left, right),
            Arithmetic::Subtract => self.builder.ins().fsub(left, right),
            Arithmetic::Multiply => self.builder.ins().fmul(left, right),
            Arithmetic::Divide | Arithmetic::Modulo => {
                // Only `/` is lowered for floats, and its result is DOUBLE.
                let zero = self.builder.ins().f64const(Ieee64::with_bits(0));
                let by_zero = self.builder.ins().fcmp(FloatCC::Equal, right, zero);
                null = self.either(null, Some(by_zero));
                self.builder.ins().fdiv(left, right)
            }
        };
        Typed { bits, null }
    }

    fn integer_arithmetic(
        &mut self,
        operation: Arithmetic,
        kind: Kind,
        left: Typed,
        right: Typed,
    ) -> Typed {
        let null = self.either(left.null, right.null);
        let (left, right) = (left.bits, right.bits);
        let (bits, fails) = match operation {
            Arithmetic::Add => {
                let sum = self.builder.ins().iadd(left, right);
                let fails = self.both_differ(sum, left, right);
                (sum, fails)
            }
            Arithmetic::Subtract => {
                let difference = self.builder.ins().isub(left, right);
                let opposite = self.builder.ins().bnot(right);
                // left = difference + right: overflows where right and the result have one sign.
                let fails = self.both_differ(difference, left, opposite);
                (difference, fails)
            }
            Arithmetic::Multiply => {
                let low = self.builder.ins().imul(left, right);
                let high = self.builder.ins().smulhi(left, right);
                let places = self.word(63);
                let sign = self.builder.ins().sshr(low, places);
                let fails = self.builder.ins().icmp(IntCC::NotEqual, high, sign);
                (low, fails)
            }
            Arithmetic::Divide => self.divide(left, right),
            Arithmetic::Modulo => self.remainder(left, right),
        };
        let null = self.either(null, Some(fails));
        self.in_range(kind, Typed { bits, null })
    }

    /// Where the result's sign differs from that of both operands: an overflow of a sum.
    fn both_differ(&mut self, result: Value, left: Value, right: Value) -> Value {
        let left = self.builder.ins().bxor(result, left);
        let right = self.builder.ins().bxor(result, right);
        let both = self.builder.ins().band(left, right);
        let zero = self.word(0);
        self.builder.ins().icmp(IntCC::SignedLessThan, both, zero)
    }

    fn divide(&mut self, left: Value, right: Value) -> (Value, Value) {
        let (zero, least, minus, one) =
            (self.word(0), self.word(i64::MIN), self.word(-1), self.word(1));
        let by_zero = self.builder.ins().icmp(IntCC::Equal, right, zero);
        let is_least = self.builder.ins().icmp(IntCC::Equal, left, least);
        let by_minus = self.builder.ins().icmp(IntCC::Equal, right, minus);
        let overflows = self.builder.ins().band(is_least, by_minus);
        let fails = self.builder.ins().bor(by_zero, overflows);
        let divisor = self.builder.ins().select(fails, one, right);
        (self.builder.ins().sdiv(left, divisor), fails)
    }

    /// By -1 nothing remains, and the instruction must not be asked.
    fn remainder(&mut self, left: Value, right: Value) -> (Value, Value) {
        let (zero, minus, one) = (self.word(0), self.word(-1), self.word(1));
        let by_zero = self.builder.ins().icmp(IntCC::Equal, right, zero);
        let by_minus = self.builder.ins().icmp(IntCC::Equal, right, minus);
        let odd = self.builder.ins().bor(by_zero, by_minus);
        let divisor = self.builder.ins().select(odd, one, right);
        (self.builder.ins().srem(left, divisor), by_zero)
    }

    /// NULL where the type does not hold the value.
    fn in_range(&mut self, kind: Kind, typed: Typed) -> Typed {
        let Some((least, greatest)) = kind.range() else { return typed };
        let (least, greatest) = (self.word(least), self.word(greatest));
        let below = self.builder.ins().icmp(IntCC::SignedLessThan, typed.bits, least);
        let above = self.builder.ins().icmp(IntCC::SignedGreaterThan, typed.bits, greatest);
        let outside = self.builder.ins().bor(below, above);
        Typed { null: self.either(typed.null, Some(outside)), ..typed }
    }

    fn negate(&mut self, kind: Kind, operand: Typed) -> Typed {
        if !kind.is_integer() {
            return Typed { bits: self.builder.ins().fneg(operand.bits), ..operand };
        }
        let zero = self.word(0);
        let bits = self.builder.ins().isub(zero, operand.bits);
        let least = self.word(i64::MIN);
        let fails = self.builder.ins().icmp(IntCC::Equal, operand.bits, least);
        let null = self.either(operand.null, Some(fails));
        self.in_range(kind, Typed { bits, null })
    }

    fn cast(&mut self, from: Kind, to: Kind, operand: Typed) -> Typed {
        let bits = operand.bits;
        let bits = match (from, to) {
            (Kind::Float, Kind::Double) => self.builder.ins().fpromote(types::F64, bits),
            (Kind::Double, Kind::Float) => self.builder.ins().fdemote(types::F32, bits),
            (Kind::Bool, Kind::Float | Kind::Double) => {
                let wide = self.builder.ins().uextend(types::I64, bits);
                self.builder.ins().fcvt_from_sint(machine_type(to), wide)
            }
            (_, Kind::Float | Kind::Double) => {
                self.builder.ins().fcvt_from_sint(machine_type(to), bits)
            }
            (Kind::Bool, _) => self.builder.ins().uextend(types::I64, bits),
            _ => return self.in_range(to, operand),
        };
        Typed { bits, ..operand }
    }
}
