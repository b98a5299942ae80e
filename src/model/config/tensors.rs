//! Which tensors a configuration has, in memory and on disk.

use super::{Config, Layer, Mamba, Moe};

/// How a tensor lies on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskLayout {
    /// One tensor of the same name and the same elements, of this shape. It differs from the shape in memory for the
    /// convolution only: `[C, 1, K]` on disk, `[C, K]` in memory.
    Same(Vec<usize>),
    /// One tensor for each expert e, `{before}.{e}.{after}`, of the shape without its first dimension.
    PerExpert { before: String, after: String },
}

/// One tensor of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// The name in memory: `backbone.…`, `lm_head.weight` or `mtp.…`. A layer's routed experts are two tensors,
    /// `backbone.layers.i.mixer.experts.up_proj.weight` `[E, F, L]` and `….down_proj.weight` `[E, L, F]`.
    pub name: String,
    /// The shape in memory.
    pub shape: Vec<usize>,
    pub disk: DiskLayout,
}

impl TensorSpec {
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// How many tensors it is on disk.
    pub fn disk_count(&self) -> usize {
        match self.disk {
            DiskLayout::Same(_) => 1,
            DiskLayout::PerExpert { .. } => self.shape[0],
        }
    }

    /// The shape of each of its tensors on disk.
    pub fn disk_shape(&self) -> &[usize] {
        match &self.disk {
            DiskLayout::Same(shape) => shape,
            DiskLayout::PerExpert { .. } => &self.shape[1..],
        }
    }

    /// The name of its tensor number `part` on disk; `part` is the expert, or 0.
    pub fn disk_name(&self, part: usize) -> String {
        match &self.disk {
            DiskLayout::Same(_) => self.name.clone(),
            DiskLayout::PerExpert { before, after } => format!("{before}.{part}.{after}"),
        }
    }

    /// True for the weight of a linear layer, which low-precision formats quantise: not embeddings, norms, the gate,
    /// the convolution or the state-space parameters.
    pub fn is_linear(&self) -> bool {
        let excluded = ["embeddings.weight", "gate.weight", "conv1d.weight"];
        self.shape.len() >= 2 && !excluded.iter().any(|end| self.name.ends_with(end))
    }

    fn same(name: String, shape: &[usize]) -> TensorSpec {
        TensorSpec { name, shape: shape.to_vec(), disk: DiskLayout::Same(shape.to_vec()) }
    }
}

/// Parameters of a model; the router's correction biases count, as they are saved like any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// All of the model's, without the MTP head.
    pub total: u64,
    /// Those that one token uses: K of E experts, and everything else (the embedding and the head both whole).
    pub active: u64,
    /// The MTP head's, 0 where there is none.
    pub mtp: u64,
}

/// Tensors on disk, without and in the MTP head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorCount {
    pub model: usize,
    pub mtp: usize,
}

impl Config {
    /// The model's tensors in order: embedding, layers, final norm, head (none where embeddings are tied). Without the
    /// MTP head's.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let d = self.hidden_size;
        let mut tensors = vec![TensorSpec::same("backbone.embeddings.weight".into(), &[self.vocab_size, d])];
        for (i, layer) in self.layers.iter().enumerate() {
            push_layer(&mut tensors, &format!("backbone.layers.{i}"), d, layer);
        }
        tensors.push(TensorSpec::same("backbone.norm_f.weight".into(), &[d]));
        if !self.tie_word_embeddings {
            tensors.push(TensorSpec::same("lm_head.weight".into(), &[self.vocab_size, d]));
        }
        tensors
    }

    /// The MTP head's tensors; none where there is no such head.
    ///
    /// The layers of all steps are numbered through. A step's first layer also holds the norms of the embedding and of
    /// the hidden state and the projection that joins them; its last one also the final norm (as in vLLM).
    pub fn mtp_tensors(&self) -> Vec<TensorSpec> {
        let (d, mut tensors) = (self.hidden_size, Vec::new());
        let Some(mtp) = &self.mtp else { return tensors };
        let of_step = mtp.layers.len();
        for (i, layer) in mtp.layers.iter().cycle().take(mtp.steps.saturating_mul(of_step)).enumerate() {
            let at = format!("mtp.layers.{i}");
            if i % of_step == 0 {
                tensors.push(TensorSpec::same(format!("{at}.eh_proj.weight"), &[d, 2 * d]));
                tensors.push(TensorSpec::same(format!("{at}.enorm.weight"), &[d]));
                tensors.push(TensorSpec::same(format!("{at}.hnorm.weight"), &[d]));
            }
            push_layer(&mut tensors, &at, d, layer);
            if i % of_step == of_step - 1 {
                tensors.push(TensorSpec::same(format!("{at}.final_layernorm.weight"), &[d]));
            }
        }
        tensors
    }

    /// Counts parameters from the shapes alone.
    pub fn parameters(&self) -> Parameters {
        let sum = |tensors: &[TensorSpec]| tensors.iter().map(|spec| spec.elements() as u64).sum::<u64>();
        let total = sum(&self.tensors());
        let idle = |layer: &Layer| match layer {
            Layer::Moe(moe) => {
                let width = moe.latent.unwrap_or(self.hidden_size);
                2 * ((moe.experts - moe.top_k) * moe.intermediate * width) as u64
            }
            _ => 0,
        };
        Parameters { total, active: total - self.layers.iter().map(idle).sum::<u64>(), mtp: sum(&self.mtp_tensors()) }
    }

    /// Counts the tensors of a checkpoint.
    pub fn disk_tensors(&self) -> TensorCount {
        let count = |tensors: &[TensorSpec]| tensors.iter().map(TensorSpec::disk_count).sum();
        TensorCount { model: count(&self.tensors()), mtp: count(&self.mtp_tensors()) }
    }
}

fn push_layer(tensors: &mut Vec<TensorSpec>, at: &str, d: usize, layer: &Layer) {
    let mut push = |name: &str, shape: &[usize]| tensors.push(TensorSpec::same(format!("{at}.{name}"), shape));
    push("norm.weight", &[d]);
    match layer {
        Layer::Mamba(m) => push_mamba(tensors, at, d, m),
        Layer::Moe(m) => push_moe(tensors, at, d, m),
        Layer::Attention(a) => {
            push("mixer.q_proj.weight", &[a.heads * a.head_dim, d]);
            push("mixer.k_proj.weight", &[a.kv_heads * a.head_dim, d]);
            push("mixer.v_proj.weight", &[a.kv_heads * a.head_dim, d]);
            push("mixer.o_proj.weight", &[d, a.heads * a.head_dim]);
        }
        Layer::Mlp(m) => {
            push("mixer.up_proj.weight", &[m.intermediate, d]);
            push("mixer.down_proj.weight", &[d, m.intermediate]);
        }
    }
}

fn push_mamba(tensors: &mut Vec<TensorSpec>, at: &str, d: usize, m: &Mamba) {
    let (channels, inner) = (m.conv_channels(), m.inner());
    let mut push = |name: &str, shape: &[usize]| tensors.push(TensorSpec::same(format!("{at}.mixer.{name}"), shape));
    push("in_proj.weight", &[m.in_proj_rows(), d]);
    push("A_log", &[m.heads]);
    push("D", &[m.heads]);
    push("dt_bias", &[m.heads]);
    if m.conv_bias {
        push("conv1d.bias", &[channels]);
    }
    push("norm.weight", &[inner]);
    push("out_proj.weight", &[d, inner]);
    tensors.push(TensorSpec {
        name: format!("{at}.mixer.conv1d.weight"),
        shape: vec![channels, m.conv_kernel],
        disk: DiskLayout::Same(vec![channels, 1, m.conv_kernel]),
    });
}

fn push_moe(tensors: &mut Vec<TensorSpec>, at: &str, d: usize, m: &Moe) {
    let (experts, f, width) = (m.experts, m.intermediate, m.latent.unwrap_or(d));
    let mut push = |name: &str, shape: &[usize]| tensors.push(TensorSpec::same(format!("{at}.mixer.{name}"), shape));
    push("gate.weight", &[experts, d]);
    push("gate.e_score_correction_bias", &[experts]);
    if m.shared_intermediate > 0 {
        push("shared_experts.up_proj.weight", &[m.shared_intermediate, d]);
        push("shared_experts.down_proj.weight", &[d, m.shared_intermediate]);
    }
    if m.latent.is_some() {
        push("fc1_latent_proj.weight", &[width, d]);
        push("fc2_latent_proj.weight", &[d, width]);
    }
    for (projection, shape) in [("up_proj", [experts, f, width]), ("down_proj", [experts, width, f])] {
        tensors.push(TensorSpec {
            name: format!("{at}.mixer.experts.{projection}.weight"),
            shape: shape.to_vec(),
            disk: DiskLayout::PerExpert {
                before: format!("{at}.mixer.experts"),
                after: format!("{projection}.weight"),
            },
        });
    }
}
