use gpusim::device::Device;

use super::sim::Run;

/// What loading a body is refused with.
fn refusal(body: &str) -> String {
    match Device::default().load(&Run::new(body, 1, 1).text()) {
        Ok(_) => panic!("accepted: {body}"),
        Err(error) => error.to_string(),
    }
}

/// Nothing is skipped in silence: what is not understood is refused with its line and text.
#[test]
fn what_is_not_understood_is_refused() {
    for (body, words) in [
        ("frobnicate.u32 %r4, %r5;", "unsupported instruction: `frobnicate.u32 %r4, %r5;`"),
        ("add.frob.u32 %r4, %r5, %r6;", "unsupported modifier `.frob`: `add.frob.u32 %r4, %r5, %r6;`"),
        ("add.u32 %r4, %r5;", "2 operands, expected 3"),
        ("add.u32 %r4, %r5, %w1;", "`%w1` is declared B64, the instruction wants U32"),
        ("add.f32 %f1, %f2, %p1;", "declared Pred"),
        ("mov.u32 %r4, %undeclared;", "`%undeclared` is not declared"),
        ("bra $nowhere;", "`$nowhere` is not declared"),
        ("@%r4 bra $end; $end:", "the guard is not a predicate"),
        ("ld.global.v2.u32 {%r4}, [%w0];", "1 registers for 2 elements"),
        ("ld.global.u64 %r4, [%w0];", "declared B32, the instruction wants U64"),
        ("ld.global.u32 %r4, %w0;", "expected an address"),
        (
            "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%w2, %w3}, {%w4}, {%w5}, {%w6, %w7};",
            "unsupported instruction",
        ),
        ("shfl.bfly.b32 %r4, %r5, 1, 31;", "only the `.sync` form"),
        ("tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%w0, {%f0, %f1}];", "line"),
        ("add.u32 %r4, %r5, %r6", "expected"),
        ("call (%r4), nowhere, (%r5);", "nowhere"),
    ] {
        let message = refusal(body);
        assert!(message.contains(words), "{body}: {message}");
        let line: u32 = message.strip_prefix("line ").unwrap().split(':').next().unwrap().parse().unwrap();
        assert!((17..=19).contains(&line), "{body}: {message}");
    }
}

#[test]
fn recursion_is_refused() {
    let text =
        format!("{}.func f()\n{{\ncall.uni f;\nret;\n}}\n.entry k()\n{{\ncall.uni f;\nret;\n}}\n", super::sim::HEADER);
    assert!(Device::default().load(&text).err().unwrap().message.contains("calls itself"));
}

#[test]
fn debug_sections_and_pragmas_are_passed_over() {
    let text = format!(
        "{}.file 1 \"a.cu\"\n.entry k()\n{{\n.loc 1 2 3, function_name $info, inlined_at 1 4 5\n.pragma \"nounroll\";\nret;\n}}\n\
         .section .debug_str\n{{\n$info:\n.b8 107\n.b8 0\n}}\n",
        super::sim::HEADER
    );
    assert_eq!(Device::default().load(&text).unwrap().kernels.len(), 1);
}

#[test]
fn kernels_may_be_named_like_opcodes() {
    let text = format!(
        "{}.entry add()\n{{\n.reg .b32 %r1;\nmov.u32 %r1, 1;\nadd.u32 %r1, %r1, 1;\nret;\n}}\n",
        super::sim::HEADER
    );
    assert!(Device::default().load(&text).unwrap().kernels.contains_key("add"));
}
