//! Upper bounds by Lagrangian relaxation: limits become prices.

use super::problem::{Capped, Item, PerResource, RESOURCES, Range};

/// Prices of the resources, the bound they give, and what each item loses at them.
pub struct Bound {
    pub prices: PerResource,
    /// No choice in range has a larger value.
    pub value: f64,
}

/// max over choices of value − Σ_r λ_r·ρ_r, plus what the limits are worth at these prices: an upper bound for any λ, λ_r ≥ 0
/// where there is no lower limit, λ_r ≤ 0 where there is no upper one. Also its subgradient, and the choice (item numbers).
pub fn relaxation(
    problem: &Capped,
    ranges: &[Range],
    prices: &PerResource,
    picks: &mut Vec<usize>,
) -> (f64, PerResource) {
    let mut value = problem.value;
    let mut rho = [0.0; RESOURCES];
    picks.clear();
    for items in &problem.items {
        let mut best = (0, f64::NEG_INFINITY);
        for (i, item) in items.iter().enumerate() {
            let net = net(item, prices);
            if net > best.1 {
                best = (i, net);
            }
        }
        picks.push(best.0);
        value += best.1;
        rho.iter_mut().zip(&items[best.0].rho).for_each(|(sum, rho)| *sum += rho);
    }
    let mut slope = [0.0; RESOURCES];
    for (r, range) in ranges.iter().enumerate().filter(|(_, range)| range.is_bound()) {
        // Below the upper limit at the lowest caps, above the lower limit at the highest.
        let above = is_ceiling(range, prices[r]);
        let (limit, fixed) = if above { (range.high, problem.rho[r]) } else { (range.low, problem.rho_most[r]) };
        value += prices[r] * (limit - fixed);
        slope[r] = limit - fixed - rho[r];
    }
    (value, slope)
}

/// An item's value less the price of what it uses.
pub fn net(item: &Item, prices: &PerResource) -> f64 {
    item.value - prices.iter().zip(&item.rho).map(|(price, rho)| price * rho).sum::<f64>()
}

/// Whether a price belongs to the upper limit.
fn is_ceiling(range: &Range, price: f64) -> bool {
    (price >= 0.0 && range.high.is_finite()) || !range.low.is_finite()
}

/// Where to look for prices.
pub enum Start {
    Anywhere,
    /// Around those of a similar problem.
    Near(PerResource),
}

/// The best prices that `iterations` find, by the ellipsoid method (in one dimension, bisection). Ends early below
/// `enough`. Each relaxed choice is shown to `seen`.
pub fn best_prices(
    problem: &Capped,
    ranges: &[Range],
    from: Start,
    iterations: usize,
    enough: f64,
    mut seen: impl FnMut(&[usize]),
) -> Bound {
    let bound: Vec<usize> = (0..ranges.len()).filter(|r| ranges[*r].is_bound()).collect();
    let n = bound.len();
    let (mut centre, radius): (Vec<f64>, Vec<f64>) = match from {
        Start::Anywhere => widest_box(problem, ranges, &bound),
        Start::Near(prices) => bound.iter().map(|r| (prices[*r], 0.2 * prices[*r].abs() + 0.05)).unzip(),
    };
    let mut shape = vec![vec![0.0; n]; n];
    for i in 0..n {
        shape[i][i] = n as f64 * radius[i] * radius[i];
    }
    let mut best = Bound { prices: [0.0; RESOURCES], value: f64::INFINITY };
    let mut picks = Vec::new();
    let at = |centre: &[f64]| {
        let mut prices = [0.0; RESOURCES];
        bound.iter().zip(centre).for_each(|(r, price)| prices[*r] = *price);
        prices
    };
    // Prices of 0 are often the answer: the limit does not bind.
    for step in 0..=iterations {
        let prices = if step == 0 { [0.0; RESOURCES] } else { at(&centre) };
        let wrong = bound.iter().position(|r| {
            (prices[*r] < 0.0 && !ranges[*r].low.is_finite()) || (prices[*r] > 0.0 && !ranges[*r].high.is_finite())
        });
        let direction: Vec<f64> = match wrong {
            Some(r) => (0..n).map(|i| if i == r { centre[r].signum() } else { 0.0 }).collect(),
            None => {
                let (value, slope) = relaxation(problem, ranges, &prices, &mut picks);
                seen(&picks);
                if value < best.value {
                    best = Bound { prices, value };
                }
                bound.iter().map(|r| slope[*r]).collect()
            }
        };
        if n == 0 || best.value <= enough || direction.iter().all(|d| *d == 0.0) {
            break;
        }
        if step > 0 && !cut(&mut centre, &mut shape, &direction) {
            break;
        }
    }
    best
}

/// A box that holds the best prices unless they are extreme: its centre and half its sides.
fn widest_box(problem: &Capped, ranges: &[Range], bound: &[usize]) -> (Vec<f64>, Vec<f64>) {
    let span = |of: &dyn Fn(&Item) -> f64| -> (f64, f64) {
        let each = problem.items.iter().map(|items| {
            let values = items.iter().map(of).filter(|v| v.is_finite());
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)))
        });
        each.filter(|(a, _)| a.is_finite()).fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
    };
    let values = span(&|item| item.value);
    let worth = (values.1 - values.0).max(1e-3);
    let sides = bound.iter().map(|r| {
        let (least, most) = span(&|item| item.rho[*r]);
        let largest = worth / (ranges[*r].high - problem.rho[*r] - least).max(1e-3);
        let smallest = -worth / (problem.rho_most[*r] + most - ranges[*r].low).max(1e-3);
        let high = if ranges[*r].high.is_finite() { largest } else { 0.0 };
        let low = if ranges[*r].low.is_finite() { smallest } else { 0.0 };
        (0.5 * (low + high), 0.5 * (high - low))
    });
    sides.unzip()
}

/// The smallest ellipsoid around the half of this one in which `direction` falls. Returns whether anything is left.
fn cut(centre: &mut [f64], shape: &mut [Vec<f64>], direction: &[f64]) -> bool {
    let n = centre.len();
    let along: Vec<f64> = shape.iter().map(|row| row.iter().zip(direction).map(|(p, d)| p * d).sum()).collect();
    let square: f64 = along.iter().zip(direction).map(|(a, d)| a * d).sum();
    if square.is_nan() || square <= 1e-24 {
        return false;
    }
    let size = square.sqrt();
    let count = n as f64;
    for i in 0..n {
        centre[i] -= along[i] / size / (count + 1.0);
    }
    if n == 1 {
        shape[0][0] *= 0.25;
        return true;
    }
    let (grow, less) = (count * count / (count * count - 1.0), 2.0 / (count + 1.0));
    for i in 0..n {
        for j in 0..n {
            shape[i][j] = grow * (shape[i][j] - less * along[i] * along[j] / square);
        }
    }
    true
}
