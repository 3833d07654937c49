//! Machine code that collects the values of one expression, from the stored rows of a block or from the
//! fields of their records, where a condition is true.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use cranelift_codegen::ir::{AbiParam, InstBuilder, MemFlagsData, Value, condcodes::IntCC, types};
use cranelift_frontend::FunctionBuilder;
use lockstep_host::sync::Mutex;
use lockstep_row::{FixedColumn, FixedKind};
use lockstep_table::Records;

use super::{
    code::{MachineCode, ProgramCache},
    emit::{Address, Emitter, IrValue},
    expression::MachineExpr,
};

type LaneEntry = unsafe extern "C" fn(*const *const u8, usize, *mut u64) -> usize;

/// Machine code that collects the values of an expression.
#[derive(Debug)]
pub(crate) struct LaneProgram {
    code: MachineCode,
    source: LaneSource,
    /// The columns that are read.
    columns: Vec<FixedColumn>,
}

/// What a [`LaneProgram`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LaneSource {
    /// Stored rows, each at its own address.
    Rows,
    /// Fields of records: the values of a column follow each other, and so do their NULL bytes.
    Records,
}

/// The most columns that code over records reads.
const RECORD_COLUMNS_MAX: usize = 32;

/// What a [`LaneProgram`] computes. Two programs with equal specifications share their code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LaneProgramSpec {
    /// `None` where rows are counted.
    pub(crate) value: Option<MachineExpr>,
    pub(crate) condition: Option<MachineExpr>,
    pub(crate) skips_zeros: bool,
    /// Whether the values are collected, or only counted.
    pub(crate) keeps_values: bool,
    /// The columns of the expressions, and where each is in a row or in a record.
    pub(crate) columns: Vec<(usize, FixedColumn)>,
    pub(crate) source: LaneSource,
}

static PROGRAMS: ProgramCache<LaneProgramSpec, LaneProgram> =
    ProgramCache(LazyLock::new(Mutex::default));

impl LaneProgram {
    /// Compiles a lane. Returns `None` where Cranelift does not support the machine, or the lane reads
    /// too many columns of records.
    pub(crate) fn compile(spec: LaneProgramSpec) -> Option<Arc<Self>> {
        PROGRAMS.find_or(spec, Self::make)
    }

    fn make(spec: &LaneProgramSpec) -> Option<Self> {
        if spec.source == LaneSource::Records && spec.columns.len() > RECORD_COLUMNS_MAX {
            return None;
        }
        let code = MachineCode::make(
            |signature| {
                signature.params.extend([AbiParam::new(types::I64); 3]);
                signature.returns.push(AbiParam::new(types::I64));
            },
            |builder, parameters| emit_lane(builder, parameters, spec),
        )?;
        let columns = spec.columns.iter().map(|(_, column)| *column).collect();
        Some(Self { code, source: spec.source, columns })
    }

    /// Returns the columns that are read.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &FixedColumn> {
        self.columns.iter()
    }

    /// Collects the values of the rows that count into `out`, and returns how many there are.
    ///
    /// # Safety
    ///
    /// Each pointer is the beginning of an encoded row of the schema whose columns the code was
    /// made for, and `out` has space for a value of each row.
    pub(crate) unsafe fn run(&self, rows: &[*const u8], out: *mut u64) -> usize {
        assert_eq!(self.source, LaneSource::Rows, "the code is for rows");
        // SAFETY: it reads columns of the rows, at the offsets that the schema gives them, and
        // writes at most as many values as there are rows.
        unsafe { self.call(rows, rows.len(), out) }
    }

    /// Collects the values of the rows that count into `out`, from their records, and returns how many
    /// there are. Panics when the records do not have the columns that the code was made for.
    ///
    /// # Safety
    ///
    /// `out` has space for a value of each record.
    pub(crate) unsafe fn run_records(&self, records: Records<'_>, out: *mut u64) -> usize {
        assert_eq!(self.source, LaneSource::Records, "the code is for records");
        let mut starts = [std::ptr::null(); RECORD_COLUMNS_MAX * 2];
        for (column, [values, nulls]) in self.columns.iter().zip(starts.as_chunks_mut().0) {
            *values = records.field(column.at(), column.kind().size()).as_ptr();
            *nulls = records.field(column.null_bit().0, 1).as_ptr();
        }
        // SAFETY: it reads as many values, and NULL bytes, of each column as there are records, and
        // writes at most as many values.
        unsafe { self.call(&starts, records.len(), out) }
    }

    /// Calls the code.
    ///
    /// # Safety
    ///
    /// The code may read what it was made to read, from the starts on and for this many rows, and
    /// write as many values to `out`.
    unsafe fn call(&self, starts: &[*const u8], rows: usize, out: *mut u64) -> usize {
        // SAFETY: the code was made by `make` with this signature and exists as long as `self`; the
        // caller's promise.
        unsafe {
            let entry = std::mem::transmute::<*const u8, LaneEntry>(self.code.entry);
            entry(starts.as_ptr(), rows, out)
        }
    }
}

/// Emits a loop over the rows.
fn emit_lane(builder: &mut FunctionBuilder<'_>, parameters: &[Value], spec: &LaneProgramSpec) {
    let [starts, row_count, out] = [parameters[0], parameters[1], parameters[2]];
    let mut fields = Vec::new();
    if spec.source == LaneSource::Records {
        let mut start =
            |at: i32| builder.ins().load(types::I64, MemFlagsData::trusted(), starts, at);
        let columns = (0..).step_by(16).take(spec.columns.len());
        fields.extend(columns.map(|at| [start(at), start(at + 8)]));
    }
    let (header, body, exit) =
        (builder.create_block(), builder.create_block(), builder.create_block());
    for block in [header, body, exit] {
        builder.append_block_param(block, types::I64);
    }
    builder.append_block_param(header, types::I64);
    builder.append_block_param(body, types::I64);
    let zero = builder.ins().iconst(types::I64, 0);
    builder.ins().jump(header, &[zero.into(), zero.into()]);

    builder.switch_to_block(header);
    let [at, count] = [builder.block_params(header)[0], builder.block_params(header)[1]];
    let goes_on = builder.ins().icmp(IntCC::UnsignedLessThan, at, row_count);
    builder.ins().brif(goes_on, body, &[at.into(), count.into()], exit, &[count.into()]);

    builder.switch_to_block(body);
    let [at, count] = [builder.block_params(body)[0], builder.block_params(body)[1]];
    let one = builder.ins().iconst(types::I64, 1);
    let columns = match spec.source {
        LaneSource::Rows => {
            let eight = builder.ins().iconst(types::I64, 8);
            let offset = builder.ins().imul(at, eight);
            let address = builder.ins().iadd(starts, offset);
            let row = builder.ins().load(types::I64, MemFlagsData::trusted(), address, 0);
            load_columns(builder, row, spec)
        }
        LaneSource::Records => load_fields(builder, at, &fields, spec),
    };
    let keep = emit_row(builder, columns, out, count, spec);
    let keep = builder.ins().uextend(types::I64, keep);
    let count = builder.ins().iadd(count, keep);
    let next = builder.ins().iadd(at, one);
    builder.ins().jump(header, &[next.into(), count.into()]);

    builder.switch_to_block(exit);
    let count = builder.block_params(exit)[0];
    builder.ins().return_(&[count]);
}

/// Emits the code for one row: stores its value as the next one of `out`, and gives 1 where the row
/// counts and 0 where it does not, in 8 bits.
fn emit_row(
    builder: &mut FunctionBuilder<'_>,
    columns: HashMap<usize, IrValue>,
    out: Value,
    count: Value,
    spec: &LaneProgramSpec,
) -> Value {
    let mut emitter = Emitter::new(builder, columns);
    let condition = spec.condition.as_ref().map(|condition| emitter.emit(condition));
    let mut keep = condition.map(|condition| emitter.is_true(condition));
    if let Some(value) = &spec.value {
        let kind = value.kind();
        let emitted = emitter.emit(value);
        let mut counts = emitter.present(emitted);
        if spec.skips_zeros {
            let nonzero = emitter.is_nonzero(kind, emitted);
            counts = emitter.builder.ins().band(counts, nonzero);
        }
        keep = Some(match keep {
            Some(keep) => emitter.builder.ins().band(keep, counts),
            None => counts,
        });
        if spec.keeps_values {
            let bits = emitter.widened(kind, emitted);
            let builder = emitter.builder;
            let eight = builder.ins().iconst(types::I64, 8);
            let offset = builder.ins().imul(count, eight);
            let address = builder.ins().iadd(out, offset);
            builder.ins().store(MemFlagsData::trusted(), bits, address, 0);
            return keep.unwrap_or(counts);
        }
    }
    match keep {
        Some(keep) => keep,
        None => builder.ins().iconst(types::I8, 1),
    }
}

/// Loads the columns of a stored row.
fn load_columns(
    builder: &mut FunctionBuilder<'_>,
    row: Value,
    spec: &LaneProgramSpec,
) -> HashMap<usize, IrValue> {
    let offset = |at: usize| i32::try_from(at).expect("the fixed section is shorter than 2 GiB");
    let load = |(name, column): &(usize, FixedColumn)| {
        let (null_byte, _) = column.null_bit();
        let value = Address { base: row, offset: offset(column.at()) };
        let nulls = Address { base: row, offset: offset(null_byte) };
        (*name, load_column(builder, value, nulls, *column))
    };
    spec.columns.iter().map(load).collect()
}

/// Loads the columns of the record at `at`. `fields` are the addresses of the values and of the NULL
/// bytes of each column.
fn load_fields(
    builder: &mut FunctionBuilder<'_>,
    at: Value,
    fields: &[[Value; 2]],
    spec: &LaneProgramSpec,
) -> HashMap<usize, IrValue> {
    let load = |((name, column), [values, nulls]): (&(usize, FixedColumn), &[Value; 2])| {
        let width = i64::try_from(column.kind().size()).expect("a width is small");
        let width = builder.ins().iconst(types::I64, width);
        let offset = builder.ins().imul(at, width);
        let value = Address { base: builder.ins().iadd(*values, offset), offset: 0 };
        let nulls = Address { base: builder.ins().iadd(*nulls, at), offset: 0 };
        (*name, load_column(builder, value, nulls, *column))
    };
    spec.columns.iter().zip(fields).map(load).collect()
}

/// Loads the value of a column and the byte with its NULL bit.
fn load_column(
    builder: &mut FunctionBuilder<'_>,
    value: Address,
    nulls: Address,
    column: FixedColumn,
) -> IrValue {
    // Columns are not aligned.
    let flags = MemFlagsData::new().with_notrap();
    let bits = match column.kind() {
        FixedKind::Bool => builder.ins().load(types::I8, flags, value.base, value.offset),
        FixedKind::I16 => builder.ins().sload16(types::I64, flags, value.base, value.offset),
        FixedKind::I32 => builder.ins().sload32(flags, value.base, value.offset),
        FixedKind::I64 => builder.ins().load(types::I64, flags, value.base, value.offset),
        FixedKind::F32 => builder.ins().load(types::F32, flags, value.base, value.offset),
        FixedKind::F64 => builder.ins().load(types::F64, flags, value.base, value.offset),
    };
    let (_, null_mask) = column.null_bit();
    let nulls = builder.ins().load(types::I8, flags, nulls.base, nulls.offset);
    let bit = builder.ins().iconst(types::I8, i64::from(null_mask.trailing_zeros()));
    let shifted = builder.ins().ushr(nulls, bit);
    let one = builder.ins().iconst(types::I8, 1);
    IrValue { bits, null: Some(builder.ins().band(shifted, one)) }
}
