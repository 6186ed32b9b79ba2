//! `#[tested]`: a function is tested where it stands, and no list names it a second time.
//!
//! A crate of its own, because an attribute needs one. It depends on nothing, so that the tests of
//! `crates/lock` may use it.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

type Result<T> = std::result::Result<T, &'static str>;

/// Makes tests of a function: names it to a macro, which knows the cases.
///
/// Below `#[tested(on_both)]`, the function `a_guarantee` stays as it is, and
/// `on_both! { a_guarantee }` follows it. With values, as in `#[tested(on_both(run))]`, that is
/// `on_both! { a_guarantee (run) }`. The macro makes a module of the function's name. Its tests are
/// named after the cases and call `super::a_guarantee`, so one of them is `file::a_guarantee::case`.
///
/// The tests of a function below `#[cfg]` are below it as well. `#[ignore]` and `#[should_panic]`
/// have no effect on a function that is no test, and are refused.
#[proc_macro_attribute]
pub fn tested(cases: TokenStream, function: TokenStream) -> TokenStream {
    let tests = tests(cases, function.clone()).unwrap_or_else(compile_error);
    function.into_iter().chain(tests).collect()
}

fn tests(cases: TokenStream, function: TokenStream) -> Result<TokenStream> {
    let (mut tests, mut item) = (conditions(function.clone())?, function.into_iter());
    let mut cases: Vec<TokenTree> = cases.into_iter().collect();
    let values = cases.pop_if(|last| group(last, Delimiter::Parenthesis).is_some());
    if cases.is_empty() {
        return Err("name the macro that makes the tests: #[tested(on_both)]");
    }
    item.find(|token| is_word(token, "fn"));
    let Some(name @ TokenTree::Ident(_)) = item.next() else {
        return Err("#[tested] stands above a function");
    };
    tests.extend(cases);
    tests.extend(call([name].into_iter().chain(values)));
    Ok(tests)
}

/// The `#[cfg]` above a function.
fn conditions(function: TokenStream) -> Result<TokenStream> {
    let mut conditions = TokenStream::new();
    let mut item = function.into_iter();
    while let (Some(hash), Some(attribute)) = (item.next(), item.next()) {
        let Some(inside) = group(&attribute, Delimiter::Bracket) else {
            break;
        };
        match inside.into_iter().next() {
            Some(name) if is_word(&name, "cfg") => conditions.extend([hash, attribute]),
            Some(name) if is_word(&name, "ignore") || is_word(&name, "should_panic") => {
                return Err("an attribute of tests stands in the macro that makes them");
            }
            _ => {}
        }
    }
    Ok(conditions)
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

fn group(token: &TokenTree, delimiter: Delimiter) -> Option<TokenStream> {
    match token {
        TokenTree::Group(group) if group.delimiter() == delimiter => Some(group.stream()),
        _ => None,
    }
}

/// What follows the name of a macro: `! { ARGUMENTS }`.
fn call(arguments: impl IntoIterator<Item = TokenTree>) -> [TokenTree; 2] {
    let arguments = arguments.into_iter().collect();
    [
        Punct::new('!', Spacing::Alone).into(),
        Group::new(Delimiter::Brace, arguments).into(),
    ]
}

fn compile_error(wrong: &str) -> TokenStream {
    let name: TokenTree = Ident::new("compile_error", Span::call_site()).into();
    let text: TokenTree = Literal::string(wrong).into();
    [name].into_iter().chain(call([text])).collect()
}
