//! Names of kinds in scenario files.

/// `GilbertElliott` as `gilbert-elliott`, like serde's `kebab-case`.
pub(crate) fn kebab(name: &str) -> String {
    let mut text = String::with_capacity(name.len() + 2);
    for c in name.chars() {
        if c.is_ascii_uppercase() && !text.is_empty() {
            text.push('-');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_written_as_serde_writes_them() {
        assert_eq!(kebab("GilbertElliott"), "gilbert-elliott");
        assert_eq!(kebab("Fq"), "fq");
    }
}
