use super::RouteOptions;

/// Weights [R, K] and experts [R, K] from logits [R, E]; `m(row, expert)` is the score mask.
pub fn moe_route(
    logits: &[f64],
    bias: &[f64],
    o: &RouteOptions,
    m: impl Fn(usize, usize) -> f64,
) -> (Vec<f64>, Vec<usize>) {
    let (mut weights, mut experts) = (Vec::new(), Vec::new());
    for (row, logits) in logits.chunks(bias.len()).enumerate() {
        let s: Vec<f64> = logits.iter().enumerate().map(|(e, z)| m(row, e) / (1.0 + (-z).exp())).collect();
        let mut choice: Vec<f64> = (0..s.len())
            .map(|e| if m(row, e) == 0.0 || s[e].is_nan() { f64::NEG_INFINITY } else { s[e] + bias[e] })
            .collect();
        let size = s.len() / o.n_group;
        let mut groups: Vec<usize> = (0..o.n_group).collect();
        let rank = |g: usize| -> f64 {
            let mut group = choice[g * size..][..size].to_vec();
            group.sort_by(|a, b| b.total_cmp(a));
            group.iter().take(2).sum()
        };
        let ranks: Vec<f64> = groups.iter().map(|g| rank(*g)).collect();
        groups.sort_by(|a, b| ranks[*b].total_cmp(&ranks[*a]));
        for g in &groups[o.topk_group..] {
            choice[g * size..][..size].fill(f64::NEG_INFINITY);
        }
        let mut order: Vec<usize> = (0..s.len()).collect();
        order.sort_by(|a, b| choice[*b].total_cmp(&choice[*a]));
        let top = &order[..o.top_k];
        let sum: f64 = if o.norm_topk_prob { top.iter().map(|e| s[*e]).sum::<f64>() + 1e-20 } else { 1.0 };
        weights.extend(top.iter().map(|e| s[*e] / sum * f64::from(o.routed_scaling_factor)));
        experts.extend(top);
    }
    (weights, experts)
}
