//! A stored row: its bytes and when it arrived, in one allocation that several indexes share.
//!
//! A [`RowHandle`] counts; a [`RowRef`] is what a reader gets, and costs nothing to copy.
//!
//! # Layout
//!
//! ```text
//! handles u32 | size u32 | arrival u64 | arrival_ms i64 | bytes
//! ```

use std::{
    alloc::{Layout, alloc, dealloc, handle_alloc_error},
    fmt,
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull,
    slice,
    sync::atomic::{AtomicU32, Ordering, fence},
};

/// What precedes the bytes of a row.
#[repr(C)]
pub(crate) struct Header {
    /// How many handles there are; the last one frees the row.
    handles: AtomicU32,
    size: u32,
    arrival: u64,
    arrival_ms: i64,
}

/// Shares ownership of a stored row.
pub struct RowHandle {
    header: NonNull<Header>,
}

// SAFETY: a row does not change once it is shared (`RowHandle::place` demands that it is not), and
// the count is atomic.
unsafe impl Send for RowHandle {}
// SAFETY: as above.
unsafe impl Sync for RowHandle {}

impl RowHandle {
    /// Stores a row that has not arrived yet: its arrival is 0 until [`Self::place`].
    /// Panics when the row is 4 GiB long or longer.
    pub fn new(bytes: &[u8]) -> Self {
        let size = u32::try_from(bytes.len()).expect("a row is shorter than 4 GiB");
        let layout = layout(bytes.len());
        // SAFETY: the layout is at least as big as the header, so not empty.
        let allocated = unsafe { alloc(layout) };
        let Some(header) = NonNull::new(allocated.cast::<Header>()) else {
            handle_alloc_error(layout)
        };
        // SAFETY: the allocation holds a header, for which it is aligned, and then the bytes.
        unsafe {
            let handles = AtomicU32::new(1);
            header.write(Header { handles, size, arrival: 0, arrival_ms: 0 });
            header
                .add(1)
                .cast::<u8>()
                .copy_from_nonoverlapping(NonNull::from(bytes).cast::<u8>(), bytes.len());
        }
        Self { header }
    }

    /// Says when the row arrived: at which position, and at what time in milliseconds. Panics
    /// when the row is shared already.
    pub fn place(&mut self, arrival: u64, arrival_ms: i64) {
        assert_eq!(self.handle_count(), 1, "a shared row does not change");
        // SAFETY: this is the only handle, borrowed exclusively, so nobody else can look.
        let header = unsafe { self.header.as_mut() };
        header.arrival = arrival;
        header.arrival_ms = arrival_ms;
    }

    /// Looks at the row.
    pub fn get(&self) -> RowRef<'_> {
        RowRef { header: self.header, _row: PhantomData }
    }

    /// How many handles share the row now.
    pub fn handle_count(&self) -> u32 {
        self.get().header().handles.load(Ordering::Relaxed)
    }

    /// Bytes that a stored row takes beside its own.
    pub const OVERHEAD: usize = size_of::<Header>();

    /// Gives the handle away as a pointer.
    pub(crate) fn into_raw(self) -> *mut Header {
        ManuallyDrop::new(self).header.as_ptr()
    }

    /// Takes back a handle given away.
    ///
    /// # Safety
    ///
    /// The pointer came out of [`Self::into_raw`] and is not used for a handle again.
    pub(crate) unsafe fn from_raw(header: *mut Header) -> Self {
        // SAFETY: `into_raw` gave it out, so it is not null.
        Self { header: unsafe { NonNull::new_unchecked(header) } }
    }
}

impl Clone for RowHandle {
    fn clone(&self) -> Self {
        self.get().to_handle()
    }
}

impl Drop for RowHandle {
    fn drop(&mut self) {
        // Release: pairs with the Acquire fence of the handle that turns out to be the last.
        if self.get().header().handles.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Acquire: pairs with the Release above in every other handle's drop.
        fence(Ordering::Acquire);
        let layout = layout(self.get().bytes().len());
        // SAFETY: this was the last handle; `new` allocated with the same layout.
        unsafe { dealloc(self.header.as_ptr().cast(), layout) };
    }
}

impl fmt::Debug for RowHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Looks at a stored row.
#[derive(Clone, Copy)]
pub struct RowRef<'a> {
    header: NonNull<Header>,
    _row: PhantomData<&'a Header>,
}

// SAFETY: it only reads what no longer changes, and counts atomically.
unsafe impl Send for RowRef<'_> {}
// SAFETY: as above.
unsafe impl Sync for RowRef<'_> {}

impl<'a> RowRef<'a> {
    /// Looks at a row through a pointer from [`RowHandle::into_raw`].
    ///
    /// # Safety
    ///
    /// The row is not freed during `'a`.
    #[inline]
    pub(crate) unsafe fn from_raw(header: *mut Header) -> Self {
        // SAFETY: `into_raw` gave it out, so it is not null.
        Self { header: unsafe { NonNull::new_unchecked(header) }, _row: PhantomData }
    }

    /// The position in which the row was accepted.
    #[inline]
    pub fn arrival(self) -> u64 {
        self.header().arrival
    }

    /// When the row was accepted, in milliseconds since the epoch.
    #[inline]
    pub fn arrival_ms(self) -> i64 {
        self.header().arrival_ms
    }

    /// The encoded row.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        let size = usize::try_from(self.header().size).expect("addresses have 32 bits or more");
        // SAFETY: `RowHandle::new` wrote so many bytes after the header, in one allocation that
        // lives for 'a.
        unsafe { slice::from_raw_parts(self.header.add(1).cast::<u8>().as_ptr(), size) }
    }

    /// Shares ownership.
    pub fn to_handle(self) -> RowHandle {
        // Relaxed: the row is reached through a handle or a guard already, which orders its bytes.
        let before = self.header().handles.fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "a row has few handles");
        RowHandle { header: self.header }
    }

    #[inline]
    fn header(self) -> &'a Header {
        // SAFETY: the row lives for 'a, and its header does not change but for the atomic count.
        unsafe { self.header.as_ref() }
    }
}

impl fmt::Debug for RowRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {} of {} bytes", self.arrival(), self.bytes().len())
    }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size_of::<Header>() + size, align_of::<Header>())
        .expect("a row is shorter than half of the address space")
}
