//! Machine code that computes expressions of one row, whose columns it is given as [`MachineCell`]s.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use cranelift_codegen::ir::{AbiParam, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::FunctionBuilder;
use lockstep_host::sync::Mutex;
use lockstep_row::Datum;

use super::{
    code::{MachineCode, ProgramCache},
    emit::{Address, Emitter, IrValue, register_type},
    expression::{MachineExpr, MachineKind},
};

/// A value that a [`RowProgram`] reads or writes.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct MachineCell {
    /// An integer sign-extended, the bits of a float, 0 or 1.
    bits: u64,
    /// 1 for NULL.
    null: u64,
}

/// The size of a cell.
const CELL_BYTES: i32 = 16;
/// The same, as the step from one cell to the next.
const CELL_STEP: usize = 16;
/// The offset of `null` in a cell.
const NULL_OFFSET: i32 = 8;

const _: () = assert!(CELL_BYTES == 16 && size_of::<MachineCell>() == 16);
const _: () = assert!(NULL_OFFSET == 8 && std::mem::offset_of!(MachineCell, null) == 8);

impl MachineCell {
    /// Converts a value that has a [`MachineKind`], or NULL.
    pub(crate) fn new(value: Datum<'_>) -> Self {
        let bits = match value {
            Datum::Bool(value) => value.into(),
            Datum::Float(value) => value.to_bits().into(),
            Datum::Double(value) => value.to_bits(),
            Datum::Null => return Self { bits: 0, null: 1 },
            other => other.as_i64().unwrap_or(0).cast_unsigned(),
        };
        Self { bits, null: 0 }
    }

    /// Returns the value, which is of a kind or NULL.
    #[expect(clippy::cast_possible_truncation, reason = "the value is of the kind")]
    pub(crate) fn datum(self, kind: MachineKind) -> Datum<'static> {
        if self.null != 0 {
            return Datum::Null;
        }
        let integer = self.bits.cast_signed();
        match kind {
            MachineKind::Bool => Datum::Bool(self.bits & 1 == 1),
            MachineKind::SmallInt => Datum::SmallInt(integer as i16),
            MachineKind::Int => Datum::Int(integer as i32),
            MachineKind::BigInt => Datum::BigInt(integer),
            MachineKind::Timestamp => Datum::Timestamp(integer),
            MachineKind::Date => Datum::Date(integer as i32),
            MachineKind::Float => Datum::Float(f32::from_bits(self.bits as u32)),
            MachineKind::Double => Datum::Double(f64::from_bits(self.bits)),
        }
    }
}

type RowEntry = unsafe extern "C" fn(*const MachineCell, *mut MachineCell);

/// Machine code for expressions of one row.
#[derive(Debug)]
pub(crate) struct RowProgram {
    code: MachineCode,
    /// The columns that the code reads, in the order of the inputs.
    pub(crate) columns: Vec<(usize, MachineKind)>,
    /// The kinds of the expressions.
    pub(crate) outputs: Vec<MachineKind>,
}

static PROGRAMS: ProgramCache<Vec<MachineExpr>, RowProgram> =
    ProgramCache(LazyLock::new(Mutex::default));

impl RowProgram {
    /// Compiles expressions. Returns `None` where Cranelift does not support the machine.
    pub(crate) fn compile(exprs: Vec<MachineExpr>) -> Option<Arc<Self>> {
        PROGRAMS.find_or(exprs, |exprs| Self::make(exprs))
    }

    fn make(exprs: &[MachineExpr]) -> Option<Self> {
        let mut columns = Vec::new();
        exprs.iter().for_each(|expr| expr.columns(&mut columns));
        let code = MachineCode::make(
            |signature| {
                signature.params.extend([AbiParam::new(types::I64); 2]);
            },
            |builder, parameters| {
                let [inputs, outputs] = [parameters[0], parameters[1]];
                let loaded = load_cells(builder, inputs, &columns);
                let mut emitter = Emitter::new(builder, loaded);
                let results: Vec<IrValue> = exprs.iter().map(|expr| emitter.emit(expr)).collect();
                for (offset, (value, expr)) in
                    (0..).step_by(CELL_STEP).zip(results.iter().zip(exprs))
                {
                    store_cell(builder, Address { base: outputs, offset }, *value, expr.kind());
                }
                builder.ins().return_(&[]);
            },
        )?;
        Some(Self { code, columns, outputs: exprs.iter().map(MachineExpr::kind).collect() })
    }

    /// Computes the expressions.
    pub(crate) fn run(&self, inputs: &[MachineCell], outputs: &mut [MachineCell]) {
        assert_eq!(inputs.len(), self.columns.len(), "a cell for each column");
        assert_eq!(outputs.len(), self.outputs.len(), "a cell for each expression");
        // SAFETY: the code was made by `make` with this signature and exists as long as `self`. It
        // reads one cell for each column and writes one for each expression; both are there.
        unsafe {
            let entry = std::mem::transmute::<*const u8, RowEntry>(self.code.entry);
            entry(inputs.as_ptr(), outputs.as_mut_ptr());
        }
    }
}

/// Loads the cells of columns.
fn load_cells(
    builder: &mut FunctionBuilder<'_>,
    inputs: Value,
    columns: &[(usize, MachineKind)],
) -> HashMap<usize, IrValue> {
    let mut loaded = HashMap::new();
    for (offset, (column, kind)) in (0..).step_by(CELL_STEP).zip(columns) {
        let flags = MemFlagsData::trusted();
        let bits = match kind {
            MachineKind::Bool => builder.ins().load(types::I8, flags, inputs, offset),
            kind => builder.ins().load(register_type(*kind), flags, inputs, offset),
        };
        let null = builder.ins().load(types::I8, flags, inputs, offset + NULL_OFFSET);
        loaded.insert(*column, IrValue { bits, null: Some(null) });
    }
    loaded
}

/// Stores a value into a cell.
fn store_cell(builder: &mut FunctionBuilder<'_>, cell: Address, value: IrValue, kind: MachineKind) {
    let flags = MemFlagsData::trusted();
    let bits = match kind {
        MachineKind::Bool => builder.ins().uextend(types::I64, value.bits),
        _ => value.bits,
    };
    builder.ins().store(flags, bits, cell.base, cell.offset);
    let null = match value.null {
        Some(null) => builder.ins().uextend(types::I64, null),
        None => builder.ins().iconst(types::I64, 0),
    };
    builder.ins().store(flags, null, cell.base, cell.offset + NULL_OFFSET);
}
