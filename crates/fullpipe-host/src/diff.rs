//! Line differences of two texts, for display.

/// Changed lines as `-old` and `+new`, each with one line of context. Settings files are short, so
/// the longest
/// common subsequence is computed by a table.
pub fn lines(old: &str, new: &str) -> Vec<String> {
    let (a, b): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    if a.len().saturating_mul(b.len()) > 4_000_000 {
        return vec![format!("({} lines before, {} lines after)", a.len(), b.len())];
    }
    let width = b.len() + 1;
    let mut common = vec![0u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            common[i * width + j] = if a[i] == b[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut all: Vec<(char, &str)> = Vec::new();
    while i < a.len() || j < b.len() {
        if i < a.len() && j < b.len() && a[i] == b[j] {
            all.push((' ', a[i]));
            i += 1;
            j += 1;
        } else if i < a.len() && (j == b.len() || common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            all.push(('-', a[i]));
            i += 1;
        } else {
            all.push(('+', b[j]));
            j += 1;
        }
    }
    let near = |at: usize| {
        let from = at.saturating_sub(1);
        all[from..(at + 2).min(all.len())].iter().any(|(sign, _)| *sign != ' ')
    };
    (0..all.len()).filter(|&at| near(at)).map(|at| format!("{}{}", all[at].0, all[at].1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_shows_changes_with_one_line_of_context() {
        assert_eq!(lines("a\nb\nc\nd\ne\n", "a\nb\nC\nd\ne\n"), [" b", "-c", "+C", " d"]);
        assert_eq!(lines("", "x\n"), ["+x"]);
        assert!(lines("same\n", "same\n").is_empty());
    }
}
