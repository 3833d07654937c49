//! What the machine allows and how its clock is kept: the limit of open files, and whether the clock is
//! synchronized.
//!
//! Called when a server starts, and by what looks for the cause of trouble.

/// The limit of the files and connections that the process may have open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFileLimit {
    /// The limit that is in force; `None`: there is none.
    pub soft: Option<u64>,
    /// To what the process may raise it; `None`: there is no limit.
    pub hard: Option<u64>,
}

/// Returns the limit of open files; `None` where the system does not say.
pub fn open_file_limit() -> Option<OpenFileLimit> {
    imp::open_file_limit()
}

/// Raises the limit of open files as far as the process may, and returns it.
pub fn raise_open_file_limit() -> Option<OpenFileLimit> {
    imp::raise_open_file_limit()
}

/// Returns whether the system keeps its clock right by another one; `None` where it does not say.
pub fn is_clock_synchronized() -> Option<bool> {
    imp::is_clock_synchronized()
}

#[cfg(target_os = "linux")]
mod imp {
    //! Linux.

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::OpenFileLimit;

    pub(super) fn open_file_limit() -> Option<OpenFileLimit> {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        debug_assert!(maximum.is_none_or(|hard| current.is_some_and(|soft| soft <= hard)));
        Some(OpenFileLimit { soft: current, hard: maximum })
    }

    pub(super) fn raise_open_file_limit() -> Option<OpenFileLimit> {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // Where it is refused, the limit stays as it was.
        let _refused = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        open_file_limit()
    }

    pub(super) fn is_clock_synchronized() -> Option<bool> {
        // SAFETY: every field of the struct is a number, of which zero is a value.
        let mut state: libc::timex = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a struct of the type that the call fills; with `modes` 0 it
        // changes nothing else.
        let found = unsafe { libc::adjtimex(&raw mut state) };
        if found < 0 {
            return None;
        }
        Some(found != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0)
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    //! Other systems, which are not read.

    use super::OpenFileLimit;

    pub(super) fn open_file_limit() -> Option<OpenFileLimit> {
        None
    }

    pub(super) fn raise_open_file_limit() -> Option<OpenFileLimit> {
        None
    }

    pub(super) fn is_clock_synchronized() -> Option<bool> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{is_clock_synchronized, open_file_limit, raise_open_file_limit};

    #[test]
    fn the_limit_of_open_files_is_raised_to_the_hard_one() {
        let before = open_file_limit().unwrap();
        let raised = raise_open_file_limit().unwrap();
        assert_eq!((raised.soft, raised.hard), (before.hard, before.hard));
        assert_eq!(open_file_limit(), Some(raised));
    }

    #[test]
    fn the_system_says_how_its_clock_is_kept() {
        assert!(is_clock_synchronized().is_some());
    }
}
