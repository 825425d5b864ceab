/// The name by which this test program knows the test function `$test` of the calling module: what
/// `--exact` takes where a test runs a part of itself in another process. A function that does not
/// exist is an error of the compiler; as a mere string it would be a process that tests nothing.
#[macro_export]
macro_rules! own_test {
    ($test:ident) => {{
        let _ = $test;
        $crate::within_program(concat!(module_path!(), "::", stringify!($test)))
    }};
}

/// A path without the name of its crate.
#[doc(hidden)]
pub fn within_program(path: &'static str) -> &'static str {
    path.split_once("::").map_or(path, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_test_names_itself() {
        assert_eq!(own_test!(a_test_names_itself), "own_test::tests::a_test_names_itself");
        // The harness names the thread of a test like the test, unless tests run one by one.
        if let Some(name) = std::thread::current().name().filter(|name| *name != "main") {
            assert_eq!(own_test!(a_test_names_itself), name);
        }
    }
}
