//! Turns operations into instructions.
//!
//! A value is a pair: its bits, and whether it is NULL. Nothing branches and nothing traps, so
//! every branch of a CASE is computed and one is selected; equal subtrees are emitted once. The
//! bits of a NULL are whatever the computation gave, and are not used.

use std::collections::HashMap;

use cranelift_codegen::ir::{
    InstBuilder, Type, Value,
    condcodes::{FloatCC, IntCC},
    immediates::{Ieee32, Ieee64},
    types,
};
use cranelift_frontend::FunctionBuilder;

use super::expression::{ArithmeticOp, ComparisonOp, MachineExpr, MachineKind};

/// An address, as a base and an offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address {
    pub(super) base: Value,
    pub(super) offset: i32,
}

/// A value of the intermediate code. BOOLs are 0 or 1 in 8 bits, integers 64 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct IrValue {
    pub(super) bits: Value,
    /// 1 for NULL, in 8 bits; `None` where it cannot be NULL.
    pub(super) null: Option<Value>,
}

/// Emits the instructions of expressions into one block.
pub(super) struct Emitter<'e, 'f> {
    pub(super) builder: &'e mut FunctionBuilder<'f>,
    /// The values of the columns.
    pub(super) columns: HashMap<usize, IrValue>,
    /// The values of the expressions that were emitted already.
    seen: HashMap<MachineExpr, IrValue>,
}

/// Returns the type of the register that has values of a kind.
pub(super) fn register_type(kind: MachineKind) -> Type {
    match kind {
        MachineKind::Bool => types::I8,
        MachineKind::Float => types::F32,
        MachineKind::Double => types::F64,
        _ => types::I64,
    }
}

impl<'e, 'f> Emitter<'e, 'f> {
    pub(super) fn new(
        builder: &'e mut FunctionBuilder<'f>,
        columns: HashMap<usize, IrValue>,
    ) -> Self {
        Self { builder, columns, seen: HashMap::new() }
    }

    /// Emits an expression, unless an equal one was emitted already.
    pub(super) fn emit(&mut self, expr: &MachineExpr) -> IrValue {
        if let Some(value) = self.seen.get(expr) {
            return *value;
        }
        let value = self.emit_new(expr);
        self.seen.insert(expr.clone(), value);
        value
    }

    fn emit_new(&mut self, expr: &MachineExpr) -> IrValue {
        match expr {
            MachineExpr::Column(column, _) => self.columns[column],
            MachineExpr::Constant(kind, bits) => {
                let null = bits.is_none().then(|| self.byte(1));
                IrValue { bits: self.constant(*kind, bits.unwrap_or(0)), null }
            }
            MachineExpr::And(sides) => self.logic(sides, false),
            MachineExpr::Or(sides) => self.logic(sides, true),
            MachineExpr::Not(operand) => {
                let operand = self.emit(operand);
                let one = self.byte(1);
                IrValue { bits: self.builder.ins().bxor(operand.bits, one), null: operand.null }
            }
            MachineExpr::IsNull(operand) => {
                let operand = self.emit(operand);
                let bits = operand.null.unwrap_or_else(|| self.byte(0));
                IrValue { bits, null: None }
            }
            MachineExpr::Select(_, parts) => {
                let [condition, yes, no] = parts.as_ref();
                let condition = self.emit(condition);
                let is_true = self.is_true(condition);
                let (yes, no) = (self.emit(yes), self.emit(no));
                self.select(is_true, yes, no)
            }
            MachineExpr::Coalesce(kind, parts) => {
                let mut parts = parts.iter().rev();
                let last = match parts.next() {
                    Some(last) => self.emit(last),
                    None => self.emit(&MachineExpr::Constant(*kind, None)),
                };
                parts.fold(last, |rest, part| {
                    let part = self.emit(part);
                    match part.null {
                        None => part,
                        Some(null) => self.select(null, rest, part),
                    }
                })
            }
            MachineExpr::Arithmetic(operation, kind, sides) => {
                let [left, right] = sides.as_ref();
                let (left_kind, right_kind) = (left.kind(), right.kind());
                let (left, right) = (self.emit(left), self.emit(right));
                match kind {
                    MachineKind::Float => self.float_arithmetic(*operation, left, right),
                    MachineKind::Double => {
                        let left = self.as_double(left_kind, left);
                        let right = self.as_double(right_kind, right);
                        self.float_arithmetic(*operation, left, right)
                    }
                    _ => self.integer_arithmetic(*operation, *kind, left, right),
                }
            }
            MachineExpr::Compare(comparison, sides) => self.compare(*comparison, sides),
            MachineExpr::Negate(kind, operand) => {
                let operand = self.emit(operand);
                self.negate(*kind, operand)
            }
            MachineExpr::Cast(to, operand) => {
                let from = operand.kind();
                let operand = self.emit(operand);
                self.cast(from, *to, operand)
            }
        }
    }

    /// Emits both sides of a comparison, converted to DOUBLE where one is a float.
    fn sides(&mut self, sides: &[MachineExpr; 2]) -> [IrValue; 2] {
        let [left, right] = sides;
        let (left_kind, right_kind) = (left.kind(), right.kind());
        let (left, right) = (self.emit(left), self.emit(right));
        let is_float = |kind: MachineKind| matches!(kind, MachineKind::Float | MachineKind::Double);
        if !is_float(left_kind) && !is_float(right_kind) {
            return [left, right];
        }
        [self.as_double(left_kind, left), self.as_double(right_kind, right)]
    }

    fn as_double(&mut self, kind: MachineKind, value: IrValue) -> IrValue {
        let bits = match kind {
            MachineKind::Double => value.bits,
            MachineKind::Float => self.builder.ins().fpromote(types::F64, value.bits),
            _ => self.builder.ins().fcvt_from_sint(types::F64, value.bits),
        };
        IrValue { bits, ..value }
    }

    fn byte(&mut self, value: i64) -> Value {
        self.builder.ins().iconst(types::I8, value)
    }

    fn word(&mut self, value: i64) -> Value {
        self.builder.ins().iconst(types::I64, value)
    }

    fn constant(&mut self, kind: MachineKind, bits: u64) -> Value {
        match kind {
            MachineKind::Bool => self.byte(bits.cast_signed()),
            MachineKind::Float => {
                let bits = u32::try_from(bits).expect("the bits of a FLOAT are 32");
                self.builder.ins().f32const(Ieee32::with_bits(bits))
            }
            MachineKind::Double => self.builder.ins().f64const(Ieee64::with_bits(bits)),
            _ => self.word(bits.cast_signed()),
        }
    }

    fn either(&mut self, left: Option<Value>, right: Option<Value>) -> Option<Value> {
        match (left, right) {
            (Some(left), Some(right)) => Some(self.builder.ins().bor(left, right)),
            (left, right) => left.or(right),
        }
    }

    fn select(&mut self, condition: Value, yes: IrValue, no: IrValue) -> IrValue {
        let bits = self.builder.ins().select(condition, yes.bits, no.bits);
        let null = match (yes.null, no.null) {
            (None, None) => None,
            (yes, no) => {
                let yes = yes.unwrap_or_else(|| self.byte(0));
                let no = no.unwrap_or_else(|| self.byte(0));
                Some(self.builder.ins().select(condition, yes, no))
            }
        };
        IrValue { bits, null }
    }

    /// Emits 1 where a BOOL is true, and 0 where it is false or NULL.
    pub(super) fn is_true(&mut self, value: IrValue) -> Value {
        match value.null {
            None => value.bits,
            Some(null) => self.builder.ins().band_not(value.bits, null),
        }
    }

    /// Emits 1 where a value is not NULL.
    pub(super) fn present(&mut self, value: IrValue) -> Value {
        let one = self.byte(1);
        match value.null {
            Some(null) => self.builder.ins().bxor(null, one),
            None => one,
        }
    }

    /// Emits 1 where a number is not zero.
    pub(super) fn is_nonzero(&mut self, kind: MachineKind, value: IrValue) -> Value {
        let zero = self.constant(kind, 0);
        match kind {
            MachineKind::Float | MachineKind::Double => {
                self.builder.ins().fcmp(FloatCC::NotEqual, value.bits, zero)
            }
            _ => self.builder.ins().icmp(IntCC::NotEqual, value.bits, zero),
        }
    }

    /// Widens a value to the 64 bits that it has in a lane.
    pub(super) fn widened(&mut self, kind: MachineKind, value: IrValue) -> Value {
        match kind {
            MachineKind::Bool => self.builder.ins().uextend(types::I64, value.bits),
            MachineKind::Float => self.builder.ins().fpromote(types::F64, value.bits),
            _ => value.bits,
        }
    }

    /// Emits AND (`decisive` is false) or OR (`decisive` is true): a side with the decisive value
    /// decides; otherwise the result is NULL where a side is.
    fn logic(&mut self, sides: &[MachineExpr; 2], decisive: bool) -> IrValue {
        let (left, right) = (self.emit(&sides[0]), self.emit(&sides[1]));
        let bits = if decisive {
            let (left, right) = (self.is_true(left), self.is_true(right));
            self.builder.ins().bor(left, right)
        } else {
            self.builder.ins().band(left.bits, right.bits)
        };
        let Some(either) = self.either(left.null, right.null) else {
            return IrValue { bits, null: None };
        };
        let left_decides = self.decides(left, decisive);
        let right_decides = self.decides(right, decisive);
        let decided = self.builder.ins().bor(left_decides, right_decides);
        let null = self.builder.ins().band_not(either, decided);
        let bits = if decisive { bits } else { self.builder.ins().band_not(bits, decided) };
        IrValue { bits, null: Some(null) }
    }

    fn decides(&mut self, side: IrValue, decisive: bool) -> Value {
        if decisive {
            return self.is_true(side);
        }
        let one = self.byte(1);
        let is_false = self.builder.ins().bxor(side.bits, one);
        self.is_true(IrValue { bits: is_false, null: side.null })
    }

    fn compare(&mut self, comparison: ComparisonOp, sides: &[MachineExpr; 2]) -> IrValue {
        let kinds = [sides[0].kind(), sides[1].kind()];
        let is_float =
            |kind: &MachineKind| matches!(kind, MachineKind::Float | MachineKind::Double);
        let may_be_nan = [sides[0].may_be_nan(), sides[1].may_be_nan()];
        let [left, right] = self.sides(sides);
        let null = self.either(left.null, right.null);
        let bits = if kinds.iter().any(is_float) {
            self.compare_floats(comparison, [left.bits, right.bits], may_be_nan)
        } else {
            let condition = match comparison {
                ComparisonOp::Equal => IntCC::Equal,
                ComparisonOp::NotEqual => IntCC::NotEqual,
                ComparisonOp::Less => IntCC::SignedLessThan,
                ComparisonOp::LessOrEqual => IntCC::SignedLessThanOrEqual,
                ComparisonOp::Greater => IntCC::SignedGreaterThan,
                ComparisonOp::GreaterOrEqual => IntCC::SignedGreaterThanOrEqual,
            };
            self.builder.ins().icmp(condition, left.bits, right.bits)
        };
        IrValue { bits, null }
    }

    /// Emits a comparison in the order of `lockstep_row::order_floats`. A side that is never NaN saves an
    /// instruction or two.
    fn compare_floats(
        &mut self,
        comparison: ComparisonOp,
        [left, right]: [Value; 2],
        [left_may, right_may]: [bool; 2],
    ) -> Value {
        match comparison {
            ComparisonOp::Greater => {
                self.compare_floats(ComparisonOp::Less, [right, left], [right_may, left_may])
            }
            ComparisonOp::GreaterOrEqual => {
                self.compare_floats(ComparisonOp::LessOrEqual, [right, left], [right_may, left_may])
            }
            ComparisonOp::NotEqual if left_may && right_may => {
                let equal =
                    self.compare_floats(ComparisonOp::Equal, [left, right], [left_may, right_may]);
                let one = self.byte(1);
                self.builder.ins().bxor(equal, one)
            }
            ComparisonOp::NotEqual => self.builder.ins().fcmp(FloatCC::NotEqual, left, right),
            ComparisonOp::Equal => {
                let equal = self.builder.ins().fcmp(FloatCC::Equal, left, right);
                if !left_may || !right_may {
                    return equal;
                }
                let is_nan = self.builder.ins().fcmp(FloatCC::Unordered, left, left);
                let is_other_nan = self.builder.ins().fcmp(FloatCC::Unordered, right, right);
                let both = self.builder.ins().band(is_nan, is_other_nan);
                self.builder.ins().bor(equal, both)
            }
            // A number is less than NaN.
            ComparisonOp::Less if !right_may => {
                self.builder.ins().fcmp(FloatCC::LessThan, left, right)
            }
            ComparisonOp::Less => {
                let less = self.builder.ins().fcmp(FloatCC::UnorderedOrLessThan, left, right);
                if !left_may {
                    return less;
                }
                let is_number = self.builder.ins().fcmp(FloatCC::Ordered, left, left);
                self.builder.ins().band(less, is_number)
            }
            ComparisonOp::LessOrEqual => {
                let less = self.builder.ins().fcmp(FloatCC::LessThanOrEqual, left, right);
                if !right_may {
                    return less;
                }
                let is_nan = self.builder.ins().fcmp(FloatCC::Unordered, right, right);
                self.builder.ins().bor(less, is_nan)
            }
        }
    }

    fn float_arithmetic(
        &mut self,
        operation: ArithmeticOp,
        left: IrValue,
        right: IrValue,
    ) -> IrValue {
        let mut null = self.either(left.null, right.null);
        let (left, right) = (left.bits, right.bits);
        let bits = match operation {
            ArithmeticOp::Add => self.builder.ins().fadd(left, right),
            ArithmeticOp::Subtract => self.builder.ins().fsub(left, right),
            ArithmeticOp::Multiply => self.builder.ins().fmul(left, right),
            ArithmeticOp::Divide | ArithmeticOp::Modulo => {
                // Only `/` is lowered for floats, and its result is DOUBLE.
                let zero = self.builder.ins().f64const(Ieee64::with_bits(0));
                let by_zero = self.builder.ins().fcmp(FloatCC::Equal, right, zero);
                null = self.either(null, Some(by_zero));
                self.builder.ins().fdiv(left, right)
            }
        };
        IrValue { bits, null }
    }

    fn integer_arithmetic(
        &mut self,
        operation: ArithmeticOp,
        kind: MachineKind,
        left: IrValue,
        right: IrValue,
    ) -> IrValue {
        let null = self.either(left.null, right.null);
        let (left, right) = (left.bits, right.bits);
        let (bits, fails) = match operation {
            ArithmeticOp::Add => {
                let sum = self.builder.ins().iadd(left, right);
                let fails = self.both_differ(sum, left, right);
                (sum, fails)
            }
            ArithmeticOp::Subtract => {
                let difference = self.builder.ins().isub(left, right);
                let opposite = self.builder.ins().bnot(right);
                // left = difference + right: overflows where right and the result have one sign.
                let fails = self.both_differ(difference, left, opposite);
                (difference, fails)
            }
            ArithmeticOp::Multiply => {
                let low = self.builder.ins().imul(left, right);
                let high = self.builder.ins().smulhi(left, right);
                let shift = self.word(63);
                let sign = self.builder.ins().sshr(low, shift);
                let fails = self.builder.ins().icmp(IntCC::NotEqual, high, sign);
                (low, fails)
            }
            ArithmeticOp::Divide => self.divide(left, right),
            ArithmeticOp::Modulo => self.remainder(left, right),
        };
        let null = self.either(null, Some(fails));
        self.in_range(kind, IrValue { bits, null })
    }

    /// Emits 1 where the sign of the result differs from those of both operands: the sum overflowed.
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

    /// Emits a remainder. By -1 it is 0, and the instruction would trap for the least integer.
    fn remainder(&mut self, left: Value, right: Value) -> (Value, Value) {
        let (zero, minus, one) = (self.word(0), self.word(-1), self.word(1));
        let by_zero = self.builder.ins().icmp(IntCC::Equal, right, zero);
        let by_minus = self.builder.ins().icmp(IntCC::Equal, right, minus);
        let odd = self.builder.ins().bor(by_zero, by_minus);
        let divisor = self.builder.ins().select(odd, one, right);
        (self.builder.ins().srem(left, divisor), by_zero)
    }

    /// Emits NULL where the type does not have the value.
    fn in_range(&mut self, kind: MachineKind, value: IrValue) -> IrValue {
        let Some((least, greatest)) = kind.range() else { return value };
        let (least, greatest) = (self.word(least), self.word(greatest));
        let below = self.builder.ins().icmp(IntCC::SignedLessThan, value.bits, least);
        let above = self.builder.ins().icmp(IntCC::SignedGreaterThan, value.bits, greatest);
        let outside = self.builder.ins().bor(below, above);
        IrValue { null: self.either(value.null, Some(outside)), ..value }
    }

    fn negate(&mut self, kind: MachineKind, operand: IrValue) -> IrValue {
        if !kind.is_integer() {
            return IrValue { bits: self.builder.ins().fneg(operand.bits), ..operand };
        }
        let zero = self.word(0);
        let bits = self.builder.ins().isub(zero, operand.bits);
        let least = self.word(i64::MIN);
        let fails = self.builder.ins().icmp(IntCC::Equal, operand.bits, least);
        let null = self.either(operand.null, Some(fails));
        self.in_range(kind, IrValue { bits, null })
    }

    fn cast(&mut self, from: MachineKind, to: MachineKind, operand: IrValue) -> IrValue {
        let bits = operand.bits;
        let bits = match (from, to) {
            (MachineKind::Float, MachineKind::Double) => {
                self.builder.ins().fpromote(types::F64, bits)
            }
            (MachineKind::Double, MachineKind::Float) => {
                self.builder.ins().fdemote(types::F32, bits)
            }
            (MachineKind::Bool, MachineKind::Float | MachineKind::Double) => {
                let wide = self.builder.ins().uextend(types::I64, bits);
                self.builder.ins().fcvt_from_sint(register_type(to), wide)
            }
            (_, MachineKind::Float | MachineKind::Double) => {
                self.builder.ins().fcvt_from_sint(register_type(to), bits)
            }
            (MachineKind::Bool, _) => self.builder.ins().uextend(types::I64, bits),
            _ => return self.in_range(to, operand),
        };
        IrValue { bits, ..operand }
    }
}
