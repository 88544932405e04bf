#include "tests/softcuda/soft_fiber.h"

#include "tests/softcuda/soft_internal.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

/* The sanitizers' frames are several times as large. */
enum { PAGE_BYTES = 4096, STACK_BYTES = 256 << 10, COLOURS = 64, COLOUR_BYTES = 64 };

static unsigned char *make_stack(void) {
    unsigned char *stack =
        mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) abort();
    mprotect(stack, PAGE_BYTES, PROT_NONE);
    return stack;
}

#ifdef __x86_64__

/* Saves what a callee must keep, changes the stack, and returns on it. */
void soft_fiber_jump(void **save, void *load);
__asm__(".text\n"
        ".type soft_fiber_jump,@function\n"
        "soft_fiber_jump:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".size soft_fiber_jump, .-soft_fiber_jump\n");

void soft_fiber_prepare(soft_fiber *fiber, void (*entry)(void)) {
    static unsigned colour; /* stacks begin at different cache lines: all at one would evict each other */
    enum { SAVED = 6 };
    if (!fiber->stack) fiber->stack = make_stack();
    soft_asan_unpoison(fiber->stack + PAGE_BYTES, STACK_BYTES - PAGE_BYTES);
    unsigned char *top = fiber->stack + STACK_BYTES - COLOUR_BYTES - (size_t)(colour++ % COLOURS) * COLOUR_BYTES;
    void **stack = (void **)top;
    *--stack = NULL; /* where entry() would return to */
    *--stack = (void *)(uintptr_t)entry;
    for (int i = 0; i < SAVED; i++) *--stack = NULL;
    fiber->context = stack;
}

void soft_fiber_switch(soft_fiber *from, soft_fiber *to) { soft_fiber_jump(&from->context, to->context); }

#else

#include <ucontext.h>

void soft_fiber_prepare(soft_fiber *fiber, void (*entry)(void)) {
    if (!fiber->stack) fiber->stack = make_stack();
    if (!fiber->context) fiber->context = calloc(1, sizeof(ucontext_t));
    ucontext_t *context = fiber->context;
    getcontext(context);
    context->uc_stack.ss_sp = fiber->stack + PAGE_BYTES;
    context->uc_stack.ss_size = STACK_BYTES - PAGE_BYTES;
    makecontext(context, entry, 0);
}

void soft_fiber_switch(soft_fiber *from, soft_fiber *to) {
    if (!from->context) from->context = calloc(1, sizeof(ucontext_t));
    swapcontext(from->context, to->context);
}

#endif
