//! Expansion of a path to files.

use std::{
    io,
    path::{Path, PathBuf},
};

use lockstep_diagnostic::Result;
use lockstep_host::disk;

use crate::error::from_io;

/// Returns the files that a path, a directory or a pattern names, in the order of their names.
/// Hidden files and marker files (`.x`, `_SUCCESS`) of a directory are excluded.
pub(super) fn expand(path: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(path.strip_prefix("file://").unwrap_or(path));
    let is_pattern = path.to_string_lossy().contains(['*', '?']) && !disk::exists(path);
    let mut files = if is_pattern { matching(path)? } else { vec![path.to_path_buf()] };
    if let [directory] = files.as_slice()
        && disk::is_folder(directory)
    {
        files = list(directory)?.into_iter().filter(|file| disk::is_file(file)).collect();
    }
    let missing = || Err(from_io(&io::ErrorKind::NotFound.into(), "read", path));
    match files.iter().find(|file| !disk::exists(file)) {
        None if !files.is_empty() => Ok(files),
        _ => missing(),
    }
}

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let paths = disk::list(directory).map_err(|error| from_io(&error, "list", directory))?;
    let is_shown = |path: &PathBuf| {
        path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with(['.', '_']))
    };
    Ok(paths.into_iter().filter(is_shown).collect())
}

/// Returns the files that match a pattern, which is expanded component by component.
fn matching(pattern: &Path) -> Result<Vec<PathBuf>> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let text = component.as_os_str().to_string_lossy();
        if !text.contains(['*', '?']) {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        let mut next = Vec::new();
        for directory in &found {
            let here = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            if !disk::is_folder(here) {
                continue;
            }
            next.extend(list(here)?.into_iter().filter(|path| {
                path.file_name().is_some_and(|name| matches(&text, &name.to_string_lossy()))
            }));
        }
        found = next;
    }
    found.retain(|path| disk::is_file(path));
    found.sort();
    Ok(found)
}

/// Returns whether a name matches a pattern: `*` is any text, `?` any character.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut position) = (0, 0);
    // The position of the last star, and the first position after the text that it matches.
    let mut star: Option<(usize, usize)> = None;
    while position < name.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, position));
                at += 1;
            }
            Some(wanted) if *wanted == '?' || *wanted == name[position] => {
                at += 1;
                position += 1;
            }
            _ => match star {
                Some((star_at, matched)) => {
                    star = Some((star_at, matched + 1));
                    at = star_at + 1;
                    position = matched + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|wanted| *wanted == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("*.csv", "a.csv", true),
            ("*.csv", "a.csv.gz", false),
            ("part-?.csv", "part-1.csv", true),
            ("part-?.csv", "part-12.csv", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
