//! Expansion of a path to files.

use std::{
    io,
    path::{Path, PathBuf},
};

use lockstep_diagnostic::{Diagnostic, Result, code};
use lockstep_host::{
    RefusedFile,
    disk::{self, FileStatus},
    query,
};
use percent_encoding::percent_decode_str;

use super::{
    found::{FileMark, FoundFile},
    location::{InputFile, Location},
    remote::{self, RemoteFile},
};
use crate::error::{from_io, interrupted};

/// The file that says that all parts of a folder were written.
const MARKER: &str = "_SUCCESS";

/// The text of a folder `name=text` that stands for NULL.
pub(crate) const NULL_FOLDER: &str = "__HIVE_DEFAULT_PARTITION__";

/// Returns the files that a path, a directory, a pattern or a URL names, in the order of their
/// names. In a pattern, `*` is any part of a name, `?` a character, and `**` any number of folders.
/// Of a directory, also the files in its folders `name=value`; hidden files and marker files (`.x`,
/// `_SUCCESS`) are excluded.
pub(super) fn expand(path: &str) -> Result<Vec<InputFile>> {
    if remote::is_remote(path) {
        let files = remote_files(path)?;
        let files: Vec<InputFile> = files.into_iter().map(remote_input).collect();
        if files.is_empty() {
            let message = format!("no file matches `{path}`");
            return Diagnostic::new(code::UNDEFINED_FILE, message).err();
        }
        return Ok(files);
    }
    let path = local_path(path);
    let files = local_files(path)?;
    if files.is_empty() {
        return Err(match disk::is_folder(path) {
            true => without_files(path),
            false => from_io(&io::ErrorKind::NotFound.into(), "read", path),
        });
    }
    files.iter().try_for_each(|file| check_file(file).map(drop))?;
    Ok(files.into_iter().map(InputFile::local).collect())
}

/// Returns a path of this machine without the scheme that it may have.
fn local_path(path: &str) -> &Path {
    Path::new(path.strip_prefix("file://").unwrap_or(path))
}

/// Returns the files that a path, a folder or a pattern names, which need not exist.
fn local_files(path: &Path) -> Result<Vec<PathBuf>> {
    let mut files = if is_pattern(path) { matching(path)? } else { vec![path.to_path_buf()] };
    if let [directory] = files.as_slice()
        && disk::is_folder(directory)
    {
        let directory = directory.clone();
        files.clear();
        add_files(&directory, &mut Vec::new(), &mut files)?;
        files.sort();
    }
    Ok(files)
}

fn is_pattern(path: &Path) -> bool {
    path.to_string_lossy().contains(['*', '?']) && !disk::exists(path)
}

/// Finds the files that a path names, in the order of their names, as [`expand`] does; there may be none, but the folder
/// has to exist. What is removed meanwhile is not found.
pub(super) fn find(path: &str) -> Result<Vec<FoundFile>> {
    if remote::is_remote(path) {
        let found = |(_, file): &(String, RemoteFile)| FileMark {
            bytes: file.size(),
            modified_ns: file.modified_ns(),
        };
        let files = remote_files(path)?;
        return Ok(files
            .into_iter()
            .map(|file| FoundFile { mark: found(&file), input: remote_input(file) })
            .collect());
    }
    let path = local_path(path);
    let (looked_at, is_pattern) = (folder_of(path), is_pattern(path));
    match disk::status(looked_at) {
        Ok(status) if status.is_folder || !is_pattern => {}
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(from_io(&error, "list", looked_at));
        }
        _ => {
            let what = if is_pattern { "directory" } else { "file or directory" };
            let message = format!("{what} `{}` does not exist", looked_at.display());
            let diagnostic = Diagnostic::new(code::UNDEFINED_FILE, message);
            return diagnostic.with_hint("Create the directory.").err();
        }
    }
    let mut found = Vec::new();
    for file in local_files(path)? {
        match mark_of(&file) {
            Ok(mark) => found.push(FoundFile { mark, input: InputFile::local(file) }),
            Err(error) if error.code == code::UNDEFINED_FILE => {}
            Err(error) => return Err(error),
        }
    }
    debug_assert!(found.is_sorted_by_key(FoundFile::path), "in the order of the names");
    Ok(found)
}

/// Returns the mark of a file. Fails for one that is missing or not to be opened.
pub(super) fn mark_of(file: &Path) -> Result<FileMark> {
    let FileStatus { bytes, modified_ns, .. } = check_file(file)?;
    Ok(FileMark { bytes, modified_ns })
}

/// Returns the folder in which the files of a pattern are looked for, and any other path as it is.
fn folder_of(path: &Path) -> &Path {
    let is_fixed = |part: &&Path| !part.to_string_lossy().contains(['*', '?']);
    let folder = path.ancestors().find(is_fixed).filter(|_| is_pattern(path)).unwrap_or(path);
    if folder == Path::new("") { Path::new(".") } else { folder }
}

/// Returns what the system says of a file. Fails for one that is missing or not to be opened, before any of them is.
fn check_file(file: &Path) -> Result<FileStatus> {
    let found = disk::status(file).map_err(|error| from_io(&error, "read", file))?;
    match found.special {
        Some(special) => Err(from_io(&RefusedFile::Special(special).into(), "read", file)),
        None => Ok(found),
    }
}

/// Makes the error for a folder without files to read.
fn without_files(folder: &Path) -> Box<Diagnostic> {
    let message = format!("directory `{}` contains no files to read", folder.display());
    let diagnostic = Diagnostic::new(code::UNDEFINED_FILE, message);
    Box::new(match disk::is_file(&folder.join(MARKER)) {
        true => {
            diagnostic.with_detail("The directory was written by a query that returned no rows.")
        }
        false => diagnostic,
    })
}

/// Returns the columns that folders `name=text` give to a file.
pub(super) fn partition_of<'p>(
    folders: impl Iterator<Item = &'p str>,
) -> Vec<(String, Option<String>)> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let column = |folder: &'p str| {
        let (name, text) = folder.split_once('=')?;
        let value = (text != NULL_FOLDER).then(|| decoded(text));
        (!name.is_empty()).then(|| (decoded(name), value))
    };
    folders.filter_map(column).collect()
}

/// Adds the files of a folder, and those of its folders `name=value`; also what cannot be opened, so that
/// it is an error. `above` are the resolved paths of the folders above it.
fn add_files(folder: &Path, above: &mut Vec<PathBuf>, files: &mut Vec<PathBuf>) -> Result<()> {
    enter_folder(folder, above)?;
    for path in list(folder)? {
        let is_partition =
            || path.file_name().is_some_and(|name| name.to_string_lossy().contains('='));
        if !disk::is_folder(&path) {
            files.push(path);
        } else if is_partition() {
            add_files(&path, above, files)?;
        }
    }
    above.pop();
    Ok(())
}

/// Adds a folder to those above what is in it. Fails for one that is among them: a link leads back.
fn enter_folder(folder: &Path, above: &mut Vec<PathBuf>) -> Result<()> {
    query::checkpoint().map_err(interrupted)?;
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let resolved = disk::resolve(here).map_err(|error| from_io(&error, "list", folder))?;
    if above.contains(&resolved) {
        let message = format!(
            "directory `{}` is a symbolic link to one of its parent directories",
            folder.display()
        );
        return Diagnostic::new(code::WRONG_OBJECT_TYPE, message)
            .with_hint("Remove the link, which makes the directory tree infinite.")
            .err();
    }
    above.push(resolved);
    Ok(())
}

/// Returns the files that a URL names, with their paths in the store.
fn remote_files(url: &str) -> Result<Vec<(String, RemoteFile)>> {
    let listed = remote::list(url)?;
    let pattern = url.splitn(4, '/').nth(3).unwrap_or_default();
    let is_pattern = pattern.contains(['*', '?']);
    let is_wanted = |path: &str| match is_pattern {
        true => matches_path(pattern, path),
        false => path.split('/').all(|part| !part.starts_with(['.', '_'])),
    };
    let wanted = listed.into_iter().filter(|(path, file)| file.size() > 0 && is_wanted(path));
    let mut wanted: Vec<_> = wanted.collect();
    wanted.sort_by(|left, right| left.0.cmp(&right.0));
    debug_assert!(wanted.is_sorted_by_key(|(path, _)| path.clone()), "in the order of the names");
    Ok(wanted)
}

fn remote_input((path, file): (String, RemoteFile)) -> InputFile {
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    InputFile {
        partition: partition_of(folders.split('/')),
        location: Location::Remote(file),
        values: Vec::new(),
        statistics: None,
    }
}

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let paths = disk::list(directory).map_err(|error| from_io(&error, "list", directory))?;
    let is_shown = |path: &PathBuf| {
        path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with(['.', '_']))
    };
    Ok(paths.into_iter().filter(is_shown).collect())
}

/// Returns the files that a pattern names, which is expanded component by component.
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
            if text == "**" {
                add_folders(directory, &mut Vec::new(), &mut next)?;
                continue;
            }
            next.extend(list(here)?.into_iter().filter(|path| {
                path.file_name().is_some_and(|name| matches(&text, &name.to_string_lossy()))
            }));
        }
        found = next;
    }
    found.retain(|path| disk::exists_or_links(path) && !disk::is_folder(path));
    found.sort();
    Ok(found)
}

/// Adds a folder and all folders below it.
fn add_folders(folder: &Path, above: &mut Vec<PathBuf>, folders: &mut Vec<PathBuf>) -> Result<()> {
    enter_folder(folder, above)?;
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    folders.push(folder.to_path_buf());
    for path in list(here)? {
        if disk::is_folder(&path) {
            add_folders(&path, above, folders)?;
        }
    }
    above.pop();
    Ok(())
}

/// Returns whether a path matches a pattern, folder by folder.
fn matches_path(pattern: &str, path: &str) -> bool {
    let (first, rest) = pattern.split_once('/').map_or((pattern, None), |(a, b)| (a, Some(b)));
    if first == "**" {
        let rest = rest.unwrap_or("*");
        let mut ends = path.match_indices('/').map(|(at, _)| at + 1);
        return matches_path(rest, path) || ends.any(|at| matches_path(rest, &path[at..]));
    }
    match (rest, path.split_once('/')) {
        (None, None) => matches(first, path),
        (Some(rest), Some((folder, below))) => matches(first, folder) && matches_path(rest, below),
        _ => false,
    }
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
    use super::{matches, matches_path, partition_of};

    #[test]
    fn two_stars_are_any_number_of_folders() {
        for (pattern, path, expected) in [
            ("a/**/*.csv", "a/x.csv", true),
            ("a/**/*.csv", "a/b/c/x.csv", true),
            ("a/**/*.csv", "b/x.csv", false),
            ("a/*/x.csv", "a/b/c/x.csv", false),
            ("**", "a/b", true),
        ] {
            assert_eq!(matches_path(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn folders_give_columns() {
        let found =
            partition_of("data/day=2024-01-01/city=a%2Fb/x=__HIVE_DEFAULT_PARTITION__".split('/'));
        let text = |text: &str| Some(text.to_owned());
        let expected = [("day", text("2024-01-01")), ("city", text("a/b")), ("x", None)];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)));
    }

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
