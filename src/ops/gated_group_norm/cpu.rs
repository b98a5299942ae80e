use rayon::prelude::*;

use crate::autograd::MaskRows;
use crate::device::parallel::{dot, for_rows};
use crate::numerics::{fma, sigmoid, silu};
use crate::tensor::Tensor;

/// Rows whose weight and mask gradients are summed by one task.
const BLOCK: usize = 64;

pub struct Norm {
    /// `[W]`.
    pub weight: Tensor,
    pub groups: usize,
    pub eps: f32,
    /// Over heads, and columns per head.
    pub mask: Option<(MaskRows, usize)>,
}

impl Norm {
    fn width(&self) -> usize {
        self.weight.numel()
    }

    /// The denominator of a row's group.
    fn count(&self, row: usize, group: usize) -> f32 {
        let columns = self.width() / self.groups;
        match &self.mask {
            None => columns as f32,
            Some((mask, head_dim)) => {
                let heads = columns / head_dim;
                *head_dim as f32 * mask.row(row)[group * heads..][..heads].iter().sum::<f32>()
            }
        }
    }

    fn scale(&self, t: &[f32], n: f32) -> f32 {
        if n > 0.0 { 1.0 / (dot(t, t) / n + self.eps).sqrt() } else { 0.0 }
    }

    pub fn forward(&self, y: &[f32], z: &[f32], out: &mut [f32]) {
        let (width, columns) = (self.width(), self.width() / self.groups);
        let weight = self.weight.f32();
        for_rows(out, width, |first, out| {
            for (i, out) in out.chunks_exact_mut(columns.max(1)).enumerate() {
                let (row, group) = (first + i / self.groups, i % self.groups);
                let at = row * width + group * columns;
                for ((t, y), z) in out.iter_mut().zip(&y[at..]).zip(&z[at..]) {
                    *t = y * silu(*z);
                }
                let scale = self.scale(out, self.count(row, group));
                for (t, w) in out.iter_mut().zip(&weight[group * columns..]) {
                    *t *= scale * w;
                }
            }
        });
    }

    /// From [y, z, dout] writes dy and dz; returns the gradients of the weight `[W]` and the mask [draws, C].
    pub fn backward(&self, inputs: [&[f32]; 3], dy: &mut [f32], dz: &mut [f32]) -> (Vec<f32>, Vec<f32>) {
        let width = self.width();
        let keep_len = self.mask.as_ref().map_or(0, |(mask, _)| mask.grad_len());
        if width == 0 {
            return (Vec::new(), vec![0.0; keep_len]);
        }
        let columns = width / self.groups;
        let partial: Vec<(Vec<f32>, Vec<f32>)> = (dy.par_chunks_mut(BLOCK * width))
            .zip(dz.par_chunks_mut(BLOCK * width))
            .enumerate()
            .map(|(block, (dy, dz))| {
                let (mut dweight, mut dkeep) = (vec![0.0; width], vec![0.0; keep_len]);
                let mut scratch = Scratch { t: vec![0.0; columns], gate: vec![0.0; columns] };
                let groups = dy.chunks_exact_mut(columns).zip(dz.chunks_exact_mut(columns));
                for (i, (dy, dz)) in groups.enumerate() {
                    let (row, group) = (block * BLOCK + i / self.groups, i % self.groups);
                    let at = row * width + group * columns;
                    let [y, z, dout] = inputs.map(|values| &values[at..at + columns]);
                    let dweight = &mut dweight[group * columns..][..columns];
                    let dn = self.backward_group((row, group), [y, z, dout], dy, dz, dweight, &mut scratch);
                    self.add_count(&mut dkeep, row, group, dn);
                }
                (dweight, dkeep)
            })
            .collect();
        let (mut dweight, mut dkeep) = (vec![0.0; width], vec![0.0; keep_len]);
        for (w, keep) in partial {
            dweight.iter_mut().zip(w).for_each(|(sum, x)| *sum += x);
            dkeep.iter_mut().zip(keep).for_each(|(sum, x)| *sum += x);
        }
        (dweight, dkeep)
    }

    /// One group of one row; returns the gradient of its denominator.
    fn backward_group(
        &self,
        (row, group): (usize, usize),
        [y, z, dout]: [&[f32]; 3],
        dy: &mut [f32],
        dz: &mut [f32],
        dweight: &mut [f32],
        scratch: &mut Scratch,
    ) -> f32 {
        let columns = y.len();
        let weight = &self.weight.f32()[group * columns..][..columns];
        let (t, gate) = (&mut scratch.t[..], &mut scratch.gate[..]);
        for j in 0..columns {
            gate[j] = sigmoid(z[j]);
            t[j] = y[j] * z[j] * gate[j];
        }
        let n = self.count(row, group);
        if n <= 0.0 {
            dy.fill(0.0);
            dz.fill(0.0);
            return 0.0;
        }
        let scale = self.scale(t, n);
        for j in 0..columns {
            dy[j] = dout[j] * weight[j];
            dweight[j] = fma(dout[j], t[j] * scale, dweight[j]);
        }
        let cubed = scale * scale * scale * dot(dy, t);
        for j in 0..columns {
            let dt = fma(dy[j], scale, -t[j] * (cubed / n));
            dz[j] = dt * y[j] * gate[j] * fma(z[j], 1.0 - gate[j], 1.0);
            dy[j] = dt * z[j] * gate[j];
        }
        // ∂scale/∂n = ½·scale³·Σt²/n²
        0.5 * cubed * dot(t, t) / (n * n)
    }

    /// A group's denominator is head_dim·Σ m over its heads.
    fn add_count(&self, dkeep: &mut [f32], row: usize, group: usize, dn: f32) {
        let Some((mask, head_dim)) = &self.mask else { return };
        let heads = self.width() / self.groups / head_dim;
        let dkeep = mask.row_grad(dkeep, row);
        for head in group * heads..(group + 1) * heads {
            dkeep[mask.interval(head)] += dn * *head_dim as f32;
        }
    }
}

/// [columns of a group] each.
struct Scratch {
    t: Vec<f32>,
    gate: Vec<f32>,
}
