; The pure half of the runtime: Apple's `air.*` functions that need no other lane, and the two readings of
; `llvm.fmuladd`. Written in LLVM's language, so that vectors and small integers pass as the kernel's module passes
; them, whatever the host's C convention says.

declare float @llvm.fma.f32(float, float, float)
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @llvm.smax.i32(i32, i32)

define float @oracle.fmuladd.fused.f32(float %a, float %b, float %c) {
  %r = call float @llvm.fma.f32(float %a, float %b, float %c)
  ret float %r
}

define float @oracle.fmuladd.split.f32(float %a, float %b, float %c) {
  %p = fmul float %a, %b
  %r = fadd float %p, %c
  ret float %r
}

; Apple does not say in which order dot adds, nor whether it rounds between. Assumed, as in the simulator: the first
; component first, each term joined to the sum so far by the reading in force.
define float @oracle.dot.fused.v4f32(<4 x float> %a, <4 x float> %b) {
  %a0 = extractelement <4 x float> %a, i64 0
  %b0 = extractelement <4 x float> %b, i64 0
  %r0 = fmul float %a0, %b0
  %a1 = extractelement <4 x float> %a, i64 1
  %b1 = extractelement <4 x float> %b, i64 1
  %r1 = call float @llvm.fma.f32(float %a1, float %b1, float %r0)
  %a2 = extractelement <4 x float> %a, i64 2
  %b2 = extractelement <4 x float> %b, i64 2
  %r2 = call float @llvm.fma.f32(float %a2, float %b2, float %r1)
  %a3 = extractelement <4 x float> %a, i64 3
  %b3 = extractelement <4 x float> %b, i64 3
  %r3 = call float @llvm.fma.f32(float %a3, float %b3, float %r2)
  ret float %r3
}

define float @oracle.dot.split.v4f32(<4 x float> %a, <4 x float> %b) {
  %p = fmul <4 x float> %a, %b
  %p0 = extractelement <4 x float> %p, i64 0
  %p1 = extractelement <4 x float> %p, i64 1
  %p2 = extractelement <4 x float> %p, i64 2
  %p3 = extractelement <4 x float> %p, i64 3
  %r1 = fadd float %p1, %p0
  %r2 = fadd float %p2, %r1
  %r3 = fadd float %p3, %r2
  ret float %r3
}

define float @air.convert.f.f32.s.i32(i32 %x) {
  %r = sitofp i32 %x to float
  ret float %r
}

define <4 x float> @air.convert.f.v4f32.f.v4f16(<4 x half> %x) {
  %r = fpext <4 x half> %x to <4 x float>
  ret <4 x float> %r
}

define <4 x float> @air.convert.f.v4f32.f.v4bf16(<4 x bfloat> %x) {
  %r = fpext <4 x bfloat> %x to <4 x float>
  ret <4 x float> %r
}

define i32 @air.min.s.i32(i32 %a, i32 %b) {
  %r = call i32 @llvm.smin.i32(i32 %a, i32 %b)
  ret i32 %r
}

define i32 @air.clamp.s.i32(i32 %x, i32 %low, i32 %high) {
  %m = call i32 @llvm.smax.i32(i32 %x, i32 %low)
  %r = call i32 @llvm.smin.i32(i32 %m, i32 %high)
  ret i32 %r
}
