//! The expressions of kernels.toml: how large a grid is, how much shared memory, and what a kernel cannot do.

/// A sum of products, taken from left to right; a/b rounds up.
#[derive(Clone, Debug)]
pub(super) struct Expression(Vec<Vec<(bool, Factor)>>);

#[derive(Clone, Debug)]
enum Factor {
    Number(u64),
    /// Bytes of an element.
    Element,
    Member(String),
}

impl Expression {
    pub fn parse(text: &str) -> Result<Expression, String> {
        let terms = text.split('+').map(|term| {
            let mut factors = Vec::new();
            let mut divide = false;
            let mut rest = term;
            loop {
                let end = rest.find(['*', '/']).unwrap_or(rest.len());
                factors.push((divide, factor(rest[..end].trim(), text)?));
                match rest.as_bytes().get(end) {
                    Some(operator) => divide = *operator == b'/',
                    None => return Ok(factors),
                }
                rest = &rest[end + 1..];
            }
        });
        terms.collect::<Result<_, String>>().map(Expression)
    }

    /// The value, with `member` naming the arguments' members; `None` where it has no such member, or overflows.
    pub fn value(&self, element: u64, member: impl Fn(&str) -> Option<u64>) -> Option<u64> {
        let mut sum = 0u64;
        for term in &self.0 {
            let mut product = 1u64;
            for (divide, factor) in term {
                let factor = match factor {
                    Factor::Number(number) => *number,
                    Factor::Element => element,
                    Factor::Member(name) => member(name)?,
                };
                product = match divide {
                    true if factor == 0 => return None,
                    true => product.div_ceil(factor),
                    false => product.checked_mul(factor)?,
                };
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }
}

fn factor(text: &str, whole: &str) -> Result<Factor, String> {
    let name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    match text {
        "" => Err(format!("{whole:?}: a factor is missing")),
        "dtype" => Ok(Factor::Element),
        _ if text.starts_with(|c: char| c.is_ascii_digit()) => {
            text.parse().map(Factor::Number).map_err(|_| format!("{whole:?}: {text} is no number"))
        }
        _ if text.chars().all(name) => Ok(Factor::Member(text.into())),
        _ => Err(format!("{whole:?}: {text:?} is no name")),
    }
}

/// What a caller of a kernel must hold to.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub text: String,
    condition: Condition,
}

#[derive(Clone, Debug)]
enum Condition {
    AtMost(Expression, u64),
    OneOf(Expression, Vec<u64>),
    Aligned(Vec<String>),
}

impl Limit {
    /// `expression <= number`, `expression < number`, `expression in numbers`, `aligned members`.
    pub fn parse(text: &str) -> Result<Limit, String> {
        let number = |n: &str| n.trim().parse::<u64>().map_err(|_| format!("{text:?}: {n:?} is no number"));
        let condition = if let Some(members) = text.strip_prefix("aligned ") {
            Condition::Aligned(members.split_whitespace().map(str::to_owned).collect())
        } else if let Some((left, right)) = text.split_once("<=") {
            Condition::AtMost(Expression::parse(left.trim())?, number(right)?)
        } else if let Some((left, right)) = text.split_once('<') {
            let below = number(right)?.checked_sub(1).ok_or_else(|| format!("{text:?}: nothing is below 0"))?;
            Condition::AtMost(Expression::parse(left.trim())?, below)
        } else if let Some((left, right)) = text.split_once(" in ") {
            Condition::OneOf(Expression::parse(left)?, right.split_whitespace().map(number).collect::<Result<_, _>>()?)
        } else {
            return Err(format!("{text:?} is no limit"));
        };
        Ok(Limit { text: text.into(), condition })
    }

    /// What was found where the limit does not hold.
    pub fn broken(&self, element: u64, member: impl Fn(&str) -> Option<u64>) -> Option<String> {
        let found = |value: Option<u64>| value.map_or("more than 64 bits".into(), |v| v.to_string());
        match &self.condition {
            Condition::AtMost(expression, most) => {
                let value = expression.value(element, member);
                (value.is_none_or(|v| v > *most)).then(|| found(value))
            }
            Condition::OneOf(expression, numbers) => {
                let value = expression.value(element, member);
                (value.is_none_or(|v| !numbers.contains(&v))).then(|| found(value))
            }
            Condition::Aligned(names) => {
                let off = names.iter().find(|name| member(name).is_none_or(|address| !address.is_multiple_of(16)));
                off.map(|name| format!("{name} at {:#x}", member(name).unwrap_or(0)))
            }
        }
    }

    /// Whether every name of it is a member.
    pub fn known(&self, member: impl Fn(&str) -> bool) -> bool {
        match &self.condition {
            Condition::AtMost(expression, _) | Condition::OneOf(expression, _) => expression.known(member),
            Condition::Aligned(names) => names.iter().all(|name| member(name)),
        }
    }
}

impl Expression {
    pub fn known(&self, member: impl Fn(&str) -> bool) -> bool {
        self.0.iter().flatten().all(|(_, factor)| !matches!(factor, Factor::Member(name) if !member(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> Option<u64> {
        match name {
            "rows" => Some(65),
            "a.width" => Some(10),
            "odd" => Some(24),
            "huge" => Some(u64::MAX),
            _ => None,
        }
    }

    #[test]
    fn expressions_round_divisions_up() {
        let value = |text: &str| Expression::parse(text).unwrap().value(2, member);
        assert_eq!(value("rows/64+1"), Some(3));
        assert_eq!(value("rows/a.width/8"), Some(1));
        assert_eq!(value("a.width*dtype*3+4"), Some(64));
        assert_eq!(value("a.width/8*8"), Some(16));
        assert_eq!((value("huge*2"), value("huge+1"), value("none")), (None, None, None));
        for text in ["", "rows*", "rows-1", "1x", "+"] {
            assert!(Expression::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn limits_say_what_was_found() {
        let broken = |text: &str| Limit::parse(text).unwrap().broken(2, member);
        assert_eq!((broken("rows <= 65"), broken("rows < 65").as_deref()), (None, Some("65")));
        assert_eq!((broken("a.width in 8 10"), broken("a.width in 8 16").as_deref()), (None, Some("10")));
        assert_eq!(broken("aligned odd").as_deref(), Some("odd at 0x18"));
        assert_eq!(broken("huge*2 <= 5").as_deref(), Some("more than 64 bits"));
        assert!(Limit::parse("rows > 3").is_err() && Limit::parse("rows <= x").is_err());
    }
}
