//! Code in executable memory, made by Cranelift, and the cache by which programs share it.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Arc, LazyLock, Weak},
};

use cranelift_codegen::{
    ir::{Signature, Value},
    settings::{self, Configurable},
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{Module, default_libcall_names};
use lockstep_host::sync::Mutex;

/// A function in executable memory.
pub(super) struct MachineCode {
    /// Its first instruction.
    pub(super) entry: *const u8,
    module: Option<JITModule>,
}

// SAFETY: the code does not change once it is made and touches only what it is given; the module
// that owns its memory is not used again until it is dropped.
unsafe impl Send for MachineCode {}
// SAFETY: as above.
unsafe impl Sync for MachineCode {}

impl MachineCode {
    /// Compiles a function: `declare` sets its signature, `emit` its body. Returns `None` where Cranelift
    /// does not support the machine.
    pub(super) fn make(
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

impl Drop for MachineCode {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: only programs run the code, and each owns its own.
            unsafe { module.free_memory() };
        }
    }
}

impl fmt::Debug for MachineCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineCode").finish_non_exhaustive()
    }
}

/// Makes an empty module for this machine.
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

/// The programs in use, by what they were made of.
pub(super) struct ProgramCache<K, P>(pub(super) LazyLock<Mutex<HashMap<K, Weak<P>>>>);

impl<K: Hash + Eq, P> ProgramCache<K, P> {
    /// Finds the program that was made of a key, or makes it.
    pub(super) fn find_or(&self, key: K, make: impl FnOnce(&K) -> Option<P>) -> Option<Arc<P>> {
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
