//! A preference of the shell that is on or off.

/// Whether something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Switch {
    On,
    #[default]
    Off,
}

impl Switch {
    /// Reads `on` or `off`.
    pub(crate) fn of_word(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "on" | "true" | "1" => Some(Self::On),
            "off" | "false" | "0" => Some(Self::Off),
            _ => None,
        }
    }

    pub(crate) fn is_on(self) -> bool {
        self == Self::On
    }

    /// Sets it to `wanted`; without it, changes it.
    pub(crate) fn change(&mut self, wanted: Option<Self>) {
        let other = if self.is_on() { Self::Off } else { Self::On };
        *self = wanted.unwrap_or(other);
        debug_assert!(wanted.is_none_or(|wanted| wanted == *self), "it is as wanted");
    }

    /// Returns its word.
    pub(crate) fn word(self) -> &'static str {
        if self.is_on() { "on" } else { "off" }
    }
}

#[cfg(test)]
mod tests {
    use super::Switch;

    #[test]
    fn a_switch_is_set_or_changed() {
        let mut switch = Switch::default();
        switch.change(None);
        assert_eq!((switch, switch.word()), (Switch::On, "on"));
        switch.change(Some(Switch::On));
        assert!(switch.is_on());
        switch.change(None);
        assert_eq!(switch.word(), "off");
        assert_eq!(Switch::of_word("On"), Some(Switch::On));
        assert_eq!(Switch::of_word("maybe"), None);
    }
}
