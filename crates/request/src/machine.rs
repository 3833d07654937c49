//! Machine code for expressions, made by Cranelift when a program is compiled.
//!
//! Two kinds of code: a [`RowProgram`] computes expressions of one row, whose columns it is given
//! as [`Cell`]s; a [`LaneProgram`] goes through the stored rows of a block, or through the fields of
//! their records, reads columns in place (see `lockstep_row::FixedColumn`), and collects the values
//! of one expression where a condition holds. Both give, bit for bit, what the row form of the
//! expression gives: `tests` compare them.
//!
//! Code is kept as long as a program uses it. Programs that need the same code share it: it is
//! found by the operations that it was made of, so that a second deployment of a query, or of
//! one like it, compiles little.

mod emit;
mod expression;

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Arc, LazyLock, Weak},
};

use cranelift_codegen::{
    ir::{AbiParam, InstBuilder, MemFlagsData, Signature, Value, condcodes::IntCC, types},
    settings::{self, Configurable},
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, default_libcall_names};
use lockstep_host::sync::Mutex;
use lockstep_row::{Datum, FixedColumn, FixedKind};
use lockstep_table::Records;

use self::emit::{Emitter, Typed, machine_type};
pub(crate) use self::expression::{Kind, Node, lower};

/// A value on its way into or out of a [`RowProgram`].
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct Cell {
    /// An integer sign-extended, the bits of a float, 0 or 1.
    bits: u64,
    /// 1 for NULL.
    null: u64,
}

const CELL_BYTES: i32 = 16;
const NULL_AT: i32 = 8;

impl Cell {
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

    #[expect(clippy::cast_possible_truncation, reason = "the value is of the kind")]
    pub(crate) fn datum(self, kind: Kind) -> Datum<'static> {
        if self.null != 0 {
            return Datum::Null;
        }
        let integer = self.bits.cast_signed();
        match kind {
            Kind::Bool => Datum::Bool(self.bits & 1 == 1),
            Kind::SmallInt => Datum::SmallInt(integer as i16),
            Kind::Int => Datum::Int(integer as i32),
            Kind::BigInt => Datum::BigInt(integer),
            Kind::Timestamp => Datum::Timestamp(integer),
            Kind::Date => Datum::Date(integer as i32),
            Kind::Float => Datum::Float(f32::from_bits(self.bits as u32)),
            Kind::Double => Datum::Double(f64::from_bits(self.bits)),
        }
    }
}

type RowEntry = unsafe extern "C" fn(*const Cell, *mut Cell);
type LaneEntry = unsafe extern "C" fn(*const *const u8, usize, *mut u64) -> usize;

/// Expressions of one row.
#[derive(Debug)]
pub(crate) struct RowProgram {
    code: Code,
    /// The columns that are read, in the order of the inputs.
    pub(crate) columns: Vec<(usize, Kind)>,
    /// The kinds of the expressions.
    pub(crate) outputs: Vec<Kind>,
}

/// The values of an expression in the rows of a block.
#[derive(Debug)]
pub(crate) struct LaneProgram {
    code: Code,
    form: Form,
    /// The columns that are read.
    columns: Vec<FixedColumn>,
}

/// What a [`LaneProgram`] goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// Stored rows, each wherever it is.
    Rows,
    /// Fields of records: the values of a column one after the other, and so their NULL bytes.
    Records,
}

/// The most columns that code for records reads.
const RECORD_COLUMNS_MAX: usize = 32;

/// What a [`LaneProgram`] is made of; columns of expressions are those of the row.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LaneSpec {
    /// `None` where rows are counted.
    pub(crate) value: Option<Node>,
    pub(crate) condition: Option<Node>,
    pub(crate) passes_zero: bool,
    /// Whether values are wanted, or only their number.
    pub(crate) keeps_values: bool,
    /// Where the columns are, in a row or in a record.
    pub(crate) columns: Vec<(usize, FixedColumn)>,
    pub(crate) form: Form,
}

/// Code that was made before and may still be in use.
struct Known<K, P>(LazyLock<Mutex<HashMap<K, Weak<P>>>>);

static ROWS: Known<Vec<Node>, RowProgram> = Known(LazyLock::new(Mutex::default));
static LANES: Known<LaneSpec, LaneProgram> = Known(LazyLock::new(Mutex::default));

impl<K: Hash + Eq, P> Known<K, P> {
    fn find_or(&self, key: K, make: impl FnOnce(&K) -> Option<P>) -> Option<Arc<P>> {
        let mut known = self.0.lock();
        if let Some(found) = known.get(&key).and_then(Weak::upgrade) {
            return Some(found);
        }
        let made = Arc::new(make(&key)?);
        known.retain(|_, program| program.strong_count() > 0);
        known.insert(key, Arc::downgrade(&made));
        Some(made)
    }
}

impl RowProgram {
    /// Code for some expressions; `None` where the machine is one that Cranelift does not know.
    pub(crate) fn compile(nodes: Vec<Node>) -> Option<Arc<Self>> {
        ROWS.find_or(nodes, |nodes| Self::make(nodes))
    }

    fn make(nodes: &[Node]) -> Option<Self> {
        let mut columns = Vec::new();
        nodes.iter().for_each(|node| node.columns(&mut columns));
        let code = Code::make(
            |signature| {
                signature.params.extend([AbiParam::new(types::I64); 2]);
            },
            |builder, parameters| {
                let [inputs, outputs] = [parameters[0], parameters[1]];
                let loaded = load_cells(builder, inputs, &columns);
                let mut emitter = Emitter::new(builder, loaded);
                let results: Vec<Typed> = nodes.iter().map(|node| emitter.emit(node)).collect();
                for (at, (typed, node)) in (0..).step_by(16).zip(results.iter().zip(nodes)) {
                    store_cell(builder, (outputs, at), *typed, node.kind());
                }
                builder.ins().return_(&[]);
            },
        )?;
        Some(Self { code, columns, outputs: nodes.iter().map(Node::kind).collect() })
    }

    /// Computes the expressions.
    pub(crate) fn run(&self, inputs: &[Cell], outputs: &mut [Cell]) {
        assert_eq!(inputs.len(), self.columns.len(), "a cell for each column");
        assert_eq!(outputs.len(), self.outputs.len(), "a cell for each expression");
        // SAFETY: the code was made by `make` with this signature and lives as long as `self`. It
        // reads one cell for each column and writes one for each expression; both are there.
        unsafe {
            let entry = std::mem::transmute::<*const u8, RowEntry>(self.code.entry);
            entry(inputs.as_ptr(), outputs.as_mut_ptr());
        }
    }
}

impl LaneProgram {
    /// Code for a lane.
    pub(crate) fn compile(spec: LaneSpec) -> Option<Arc<Self>> {
        LANES.find_or(spec, Self::make)
    }

    fn make(spec: &LaneSpec) -> Option<Self> {
        if spec.form == Form::Records && spec.columns.len() > RECORD_COLUMNS_MAX {
            return None;
        }
        let code = Code::make(
            |signature| {
                signature.params.extend([AbiParam::new(types::I64); 3]);
                signature.returns.push(AbiParam::new(types::I64));
            },
            |builder, parameters| emit_lane(builder, parameters, spec),
        )?;
        let columns = spec.columns.iter().map(|(_, column)| *column).collect();
        Some(Self { code, form: spec.form, columns })
    }

    /// The columns that are read.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &FixedColumn> {
        self.columns.iter()
    }

    /// Collects the values of the rows that count into `out`, and says how many there are.
    ///
    /// # Safety
    ///
    /// Each pointer is the beginning of an encoded row of the schema whose columns the code was
    /// made for, and `out` has room for a value of each row.
    pub(crate) unsafe fn run(&self, rows: &[*const u8], out: *mut u64) -> usize {
        assert_eq!(self.form, Form::Rows, "the code is for rows");
        // SAFETY: it reads columns of the rows, at the places that the schema gives them, and
        // writes at most as many values as there are rows.
        unsafe { self.enter(rows, rows.len(), out) }
    }

    /// Collects the values of the records of rows that count into `out`, and says how many there
    /// are. Panics when the records do not have the columns that the code was made for.
    ///
    /// # Safety
    ///
    /// `out` has room for a value of each record.
    pub(crate) unsafe fn run_records(&self, records: Records<'_>, out: *mut u64) -> usize {
        assert_eq!(self.form, Form::Records, "the code is for records");
        let mut starts = [std::ptr::null(); RECORD_COLUMNS_MAX * 2];
        for (column, [values, nulls]) in self.columns.iter().zip(starts.as_chunks_mut().0) {
            *values = records.field(column.at(), column.kind().size()).as_ptr();
            *nulls = records.field(column.null_bit().0, 1).as_ptr();
        }
        // SAFETY: it reads as many values, and NULL bytes, of each column as there are records, and
        // writes at most as many values.
        unsafe { self.enter(&starts, records.len(), out) }
    }

    /// # Safety
    ///
    /// The code may read from the starts on, for so many rows, what it was made to read, and write
    /// as many values to `out`.
    unsafe fn enter(&self, starts: &[*const u8], rows: usize, out: *mut u64) -> usize {
        // SAFETY: the code was made by `make` with this signature and lives as long as `self`; the
        // caller's promise.
        unsafe {
            let entry = std::mem::transmute::<*const u8, LaneEntry>(self.code.entry);
            entry(starts.as_ptr(), rows, out)
        }
    }
}

fn load_cells(
    builder: &mut FunctionBuilder<'_>,
    inputs: Value,
    columns: &[(usize, Kind)],
) -> HashMap<usize, Typed> {
    let mut loaded = HashMap::new();
    for (at, (column, kind)) in (0..).step_by(16).zip(columns) {
        let flags = MemFlagsData::trusted();
        let bits = match kind {
            Kind::Bool => builder.ins().load(types::I8, flags, inputs, at),
            kind => builder.ins().load(machine_type(*kind), flags, inputs, at),
        };
        let null = builder.ins().load(types::I8, flags, inputs, at + NULL_AT);
        loaded.insert(*column, Typed { bits, null: Some(null) });
    }
    loaded
}

fn store_cell(
    builder: &mut FunctionBuilder<'_>,
    (outputs, at): (Value, i32),
    typed: Typed,
    kind: Kind,
) {
    let flags = MemFlagsData::trusted();
    let bits = match kind {
        Kind::Bool => builder.ins().uextend(types::I64, typed.bits),
        _ => typed.bits,
    };
    builder.ins().store(flags, bits, outputs, at);
    let null = match typed.null {
        Some(null) => builder.ins().uextend(types::I64, null),
        None => builder.ins().iconst(types::I64, 0),
    };
    builder.ins().store(flags, null, outputs, at + NULL_AT);
}

const _: () = assert!(CELL_BYTES == 16 && size_of::<Cell>() == 16);

/// A loop over the rows.
fn emit_lane(builder: &mut FunctionBuilder<'_>, parameters: &[Value], spec: &LaneSpec) {
    let [starts, row_count, out] = [parameters[0], parameters[1], parameters[2]];
    let mut fields = Vec::new();
    if spec.form == Form::Records {
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
    let columns = match spec.form {
        Form::Rows => {
            let eight = builder.ins().iconst(types::I64, 8);
            let offset = builder.ins().imul(at, eight);
            let place = builder.ins().iadd(starts, offset);
            let row = builder.ins().load(types::I64, MemFlagsData::trusted(), place, 0);
            load_columns(builder, row, spec)
        }
        Form::Records => load_fields(builder, at, (&fields, spec)),
    };
    let keep = emit_row(builder, columns, (out, count), spec);
    let keep = builder.ins().uextend(types::I64, keep);
    let count = builder.ins().iadd(count, keep);
    let next = builder.ins().iadd(at, one);
    builder.ins().jump(header, &[next.into(), count.into()]);

    builder.switch_to_block(exit);
    let count = builder.block_params(exit)[0];
    builder.ins().return_(&[count]);
}

/// Writes the value of a row to its place and says whether the row counts: 1 or 0, in 8 bits.
fn emit_row(
    builder: &mut FunctionBuilder<'_>,
    columns: HashMap<usize, Typed>,
    (out, count): (Value, Value),
    spec: &LaneSpec,
) -> Value {
    let mut emitter = Emitter::new(builder, columns);
    let condition = spec.condition.as_ref().map(|condition| emitter.emit(condition));
    let mut keep = condition.map(|condition| emitter.is_true(condition));
    if let Some(value) = &spec.value {
        let kind = value.kind();
        let typed = emitter.emit(value);
        let mut kept = emitter.present(typed);
        if spec.passes_zero {
            let nonzero = emitter.is_nonzero(kind, typed);
            kept = emitter.builder.ins().band(kept, nonzero);
        }
        keep = Some(match keep {
            Some(keep) => emitter.builder.ins().band(keep, kept),
            None => kept,
        });
        if spec.keeps_values {
            let bits = emitter.widened(kind, typed);
            let builder = emitter.builder;
            let eight = builder.ins().iconst(types::I64, 8);
            let offset = builder.ins().imul(count, eight);
            let place = builder.ins().iadd(out, offset);
            builder.ins().store(MemFlagsData::trusted(), bits, place, 0);
            return keep.unwrap_or(kept);
        }
    }
    match keep {
        Some(keep) => keep,
        None => builder.ins().iconst(types::I8, 1),
    }
}

/// The columns of a row.
fn load_columns(
    builder: &mut FunctionBuilder<'_>,
    row: Value,
    spec: &LaneSpec,
) -> HashMap<usize, Typed> {
    let place = |at: usize| i32::try_from(at).expect("the fixed section is shorter than 2 GiB");
    let load = |(name, column): &(usize, FixedColumn)| {
        let (null_byte, _) = column.null_bit();
        let (value, nulls) = ((row, place(column.at())), (row, place(null_byte)));
        (*name, load_column(builder, (value, nulls), *column))
    };
    spec.columns.iter().map(load).collect()
}

/// The columns of the record at `at`, each with where its values and its NULL bytes begin.
fn load_fields(
    builder: &mut FunctionBuilder<'_>,
    at: Value,
    (fields, spec): (&[[Value; 2]], &LaneSpec),
) -> HashMap<usize, Typed> {
    let load = |((name, column), [values, nulls]): (&(usize, FixedColumn), &[Value; 2])| {
        let width = i64::try_from(column.kind().size()).expect("a width is small");
        let width = builder.ins().iconst(types::I64, width);
        let offset = builder.ins().imul(at, width);
        let value = builder.ins().iadd(*values, offset);
        let null = builder.ins().iadd(*nulls, at);
        (*name, load_column(builder, ((value, 0), (null, 0)), *column))
    };
    spec.columns.iter().zip(fields).map(load).collect()
}

/// A value and the byte with its NULL bit, each from a pointer and a distance.
fn load_column(
    builder: &mut FunctionBuilder<'_>,
    ((value, at), (nulls, nulls_at)): ((Value, i32), (Value, i32)),
    column: FixedColumn,
) -> Typed {
    // Columns are not aligned.
    let flags = MemFlagsData::new().with_notrap();
    let bits = match column.kind() {
        FixedKind::Bool => builder.ins().load(types::I8, flags, value, at),
        FixedKind::I16 => builder.ins().sload16(types::I64, flags, value, at),
        FixedKind::I32 => builder.ins().sload32(flags, value, at),
        FixedKind::I64 => builder.ins().load(types::I64, flags, value, at),
        FixedKind::F32 => builder.ins().load(types::F32, flags, value, at),
        FixedKind::F64 => builder.ins().load(types::F64, flags, value, at),
    };
    let (_, null_mask) = column.null_bit();
    let nulls = builder.ins().load(types::I8, flags, nulls, nulls_at);
    let bit = builder.ins().iconst(types::I8, i64::from(null_mask.trailing_zeros()));
    let shifted = builder.ins().ushr(nulls, bit);
    let one = builder.ins().iconst(types::I8, 1);
    Typed { bits, null: Some(builder.ins().band(shifted, one)) }
}

/// Code in executable memory.
struct Code {
    entry: *const u8,
    module: Option<JITModule>,
}

// SAFETY: the code does not change once it is made and touches only what it is given; the module
// that owns its memory is not used again until it is dropped.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    fn make(
        declare: impl FnOnce(&mut Signature),
        emit: impl FnOnce(&mut FunctionBuilder<'_>, &[Value]),
    ) -> Option<Self> {
        let mut module = new_module()?;
        let mut context = module.make_context();
        declare(&mut context.func.signature);
        let id = module.declare_anonymous_function(&context.func.signature).ok()?;
        let mut frontend = FunctionBuilderContext::new();
        let mut builder = FunctionBuilder::new(&mut context.func, &mut frontend);
        let block = builder.create_block();
        builder.append_block_params_for_function_params(block);
        builder.switch_to_block(block);
        let parameters = builder.block_params(block).to_vec();
        emit(&mut builder, &parameters);
        builder.seal_all_blocks();
        builder.finalize(module.target_config());
        module.define_function(id, &mut context).ok()?;
        module.finalize_definitions().ok()?;
        let entry = module.get_finalized_function(id);
        Some(Self { entry, module: Some(module) })
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: only programs run the code, and each owns its own.
            unsafe { module.free_memory() };
        }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").finish_non_exhaustive()
    }
}

fn new_module() -> Option<JITModule> {
    let mut flags = settings::builder();
    for (name, value) in
        [("opt_level", "speed"), ("is_pic", "false"), ("use_colocated_libcalls", "false")]
    {
        flags.set(name, value).ok()?;
    }
    let isa = cranelift_native::builder().ok()?.finish(settings::Flags::new(flags)).ok()?;
    Some(JITModule::new(JITBuilder::with_isa(isa, default_libcall_names())))
}

#[cfg(test)]
mod tests;
