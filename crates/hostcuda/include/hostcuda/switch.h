// The context switch between fibers: callee-saved registers and the stack pointer, nothing else.
//
// hostcuda_switch(&save, to) pushes the callee-saved registers, stores the stack pointer in *save,
// loads `to` and pops what lies there. A fresh stack is prepared so that the pops find zeros and the
// final return enters the fiber's entry function.
#pragma once
#include <cstdint>

extern "C" void hostcuda_switch(void** save, void* to) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
asm(R"(
.pushsection .text.hostcuda_switch,"axG",@progbits,hostcuda_switch,comdat
.weak hostcuda_switch
.hidden hostcuda_switch
.type hostcuda_switch,@function
.p2align 4
hostcuda_switch:
  endbr64
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size hostcuda_switch, .-hostcuda_switch
.popsection
)");
namespace hostcuda {
// The stack pointer of a fiber that will enter `entry`. At entry rsp is 8 modulo 16, as after a call.
inline void* fresh_stack(uintptr_t top, void (*entry)()) {
  void** sp = (void**)(top & ~(uintptr_t)63);
  *--sp = nullptr;  // the return address of entry, which never returns
  *--sp = (void*)entry;
  for (int i = 0; i < 6; ++i) *--sp = nullptr;
  return sp;
}
}  // namespace hostcuda
#elif defined(__aarch64__)
asm(R"(
.pushsection .text.hostcuda_switch,"axG",%progbits,hostcuda_switch,comdat
.weak hostcuda_switch
.hidden hostcuda_switch
.type hostcuda_switch,%function
.p2align 4
hostcuda_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size hostcuda_switch, .-hostcuda_switch
.popsection
)");
namespace hostcuda {
inline void* fresh_stack(uintptr_t top, void (*entry)()) {
  void** sp = (void**)(top & ~(uintptr_t)63) - 20;
  for (int i = 0; i < 20; ++i) sp[i] = nullptr;
  sp[11] = (void*)entry;  // x30
  return sp;
}
}  // namespace hostcuda
#else
#error "hostcuda: fibers are written for x86-64 and aarch64 only"
#endif
