//! Finding the valid name that is nearest to a mistyped one.

/// Names longer than this are not compared: the table of distances is quadratic.
const NAME_LENGTH_MAX: usize = 64;

/// Returns the candidate with the smallest edit distance to `wanted`, if it is close enough to be
/// a likely typing mistake (at most a third of the name, and at least one edit). Upper and lower
/// case count as equal. Costs O(length²) per candidate.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    let limit = (wanted.chars().count() / 3).max(1);
    names
        .into_iter()
        .map(|name| (distance(&wanted, &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Returns the optimal string alignment distance: insertions, deletions, substitutions and swaps of
/// neighbours each count one.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(NAME_LENGTH_MAX).collect();
    let right: Vec<char> = right.chars().take(NAME_LENGTH_MAX).collect();
    let mut rows = vec![vec![0_usize; right.len() + 1]; left.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=left.len() {
        for j in 1..=right.len() {
            let substitution = rows[i - 1][j - 1] + usize::from(left[i - 1] != right[j - 1]);
            let mut best = substitution.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            let swapped =
                i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1];
            if swapped {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_typing_mistake_finds_its_name() {
        let names = ["count", "sum", "distinct_count", "substring"];
        assert_eq!(nearest("cuont", names), Some("count"));
        assert_eq!(nearest("SUMM", names), Some("sum"));
        assert_eq!(nearest("distinctcount", names), Some("distinct_count"));
    }

    #[test]
    fn an_unrelated_word_finds_nothing() {
        assert_eq!(nearest("zebra", ["count", "sum"]), None);
    }
}
