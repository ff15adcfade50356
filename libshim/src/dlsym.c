/* dlsym and dlvsym: whoever looks a hooked function up gets the hook; every other question reaches the next dlsym.
 *
 * Ours must not appear between the caller and the loader: for RTLD_NEXT, and to find the caller's namespace, the
 * loader looks at the return address. So the entry points are a few instructions that jump on with registers and
 * stack as they came. Names that do not start with "cu" or "nv" cost two loads and compares.
 * SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

#include "elf_lookup.h"
#include "loader.h"

/* Where the entry points jump on to; 0 until looked for. Hidden, so that the assembly reaches them directly. */
__attribute__((visibility("hidden"))) void *aq_next_dlsym, *aq_next_dlvsym;

void *aq_find_next_dlsym(void);
void *aq_find_next_dlvsym(void);
void *aq_dlsym_answer(void *handle, const char *symbol, const char *unused, const void *caller);
void *aq_dlvsym_answer(void *handle, const char *symbol, const char *version, const void *caller);

/* The entry points return NULL for it. */
#define NOTHING ((void *)-1)

static void *find_next(void **into, const char *name) {
  void *found = aq_elf_next(&aq_next_dlsym, NULL, name);
  __atomic_store_n(into, found, __ATOMIC_RELAXED);
  return found;
}

void *aq_find_next_dlsym(void) { return find_next(&aq_next_dlsym, "dlsym"); }
void *aq_find_next_dlvsym(void) { return find_next(&aq_next_dlvsym, "dlvsym"); }

/* Whether a question is about the scope that the program shares with all libraries that it started with, and about no
 * other: by the program's own handle, or by RTLD_DEFAULT or RTLD_NEXT from the program itself. */
static bool is_global(const void *handle, const void *caller) {
  Dl_info unused;
  struct link_map *object = NULL;
  if (handle == _r_debug.r_map) return true;
  if (handle != RTLD_DEFAULT && handle != RTLD_NEXT) return false;
  return dladdr1(caller, &unused, (void **)&object, RTLD_DL_LINKMAP) && object == _r_debug.r_map;
}

static void *ask(void *handle, const char *symbol, const char *version) {
  return version ? aq_real_dlvsym(handle, symbol, version) : aq_real_dlsym(handle, symbol);
}

/* What a question that finds us first would find without us. The shared scope behind us is asked: for RTLD_NEXT the
 * loader looks from where we are. A library that was loaded later searches a scope of its own besides, which no interface
 * tells: for its questions the loaded driver is asked, because a hook too few would evade the slice. */
static void *find_behind_us(void *handle, const char *symbol, const char *version, const void *caller) {
  void *library = is_global(handle, caller) ? NULL : aq_loaded_library(symbol);
  return ask(library ? library : RTLD_NEXT, symbol, version);
}

/* The hook to give for this question; NULL to ask the next dlsym; or NOTHING where that would find our own function though
 * there is no other of this name. Nobody gets a hook of a function which the driver lacks, nor one for a forwarder's,
 * which leads to a hook itself: perhaps to that of another namespace's copy of us, and then both would count. */
static void *answer(void *handle, const char *symbol, const char *version, const void *caller) {
  const aq_hook *row = aq_hook_by_symbol(symbol);
  if (!row) return NULL;
  bool finds_us = handle == _r_debug.r_map || handle == RTLD_DEFAULT || handle == RTLD_NEXT;
  void *found = finds_us ? find_behind_us(handle, symbol, version, caller) : ask(handle, symbol, version);
  if (found == row->hook) return found;
  if (!found) return finds_us ? NOTHING : NULL;
  if (aq_is_forwarder(found)) return NULL;
  if (!finds_us) aq_loader_learn(handle, symbol);
  return row->hook;
}

void *aq_dlsym_answer(void *handle, const char *symbol, const char *unused, const void *caller) {
  (void)unused;
  return answer(handle, symbol, NULL, caller);
}

void *aq_dlvsym_answer(void *handle, const char *symbol, const char *version, const void *caller) {
  return version ? answer(handle, symbol, version, caller) : NULL;
}

#if defined(__x86_64__)
/* Arguments: rdi handle, rsi symbol, rdx version. rcx and r11 are free for us. */
#define ENTRY_POINT(name)                                      \
  __asm__(                                                     \
      ".text\n.p2align 4\n.globl " #name                       \
      "\n.type " #name ", @function\n" #name                   \
      ":\n"                                                    \
      "  .cfi_startproc\n"                                     \
      "  endbr64\n"                                            \
      "  movq aq_next_" #name                                  \
      "(%rip), %r11\n"                                         \
      "  testq %r11, %r11\n  jz 3f\n"                          \
      "1: testq %rsi, %rsi\n  jz 2f\n"                         \
      "  cmpb $'c', (%rsi)\n  jne 5f\n"                        \
      "  cmpb $'u', 1(%rsi)\n  je 4f\n  jmp *%r11\n"           \
      "5: cmpb $'n', (%rsi)\n  jne 2f\n"                       \
      "  cmpb $'v', 1(%rsi)\n  je 4f\n"                        \
      "2: jmp *%r11\n"                                         \
      "3: pushq %rdi\n  pushq %rsi\n  pushq %rdx\n"            \
      "  .cfi_adjust_cfa_offset 24\n"                          \
      "  call aq_find_next_" #name                             \
      "\n  popq %rdx\n  popq %rsi\n  popq %rdi\n"              \
      "  .cfi_adjust_cfa_offset -24\n"                         \
      "  movq %rax, %r11\n  testq %rax, %rax\n  jnz 1b\n  ret\n" \
      "4: pushq %rdi\n  pushq %rsi\n  pushq %rdx\n"            \
      "  .cfi_adjust_cfa_offset 24\n"                          \
      "  movq 24(%rsp), %rcx\n"                                \
      "  call aq_" #name                                       \
      "_answer\n  popq %rdx\n  popq %rsi\n  popq %rdi\n"       \
      "  .cfi_adjust_cfa_offset -24\n"                         \
      "  testq %rax, %rax\n  jnz 6f\n"                         \
      "  movq aq_next_" #name                                  \
      "(%rip), %r11\n  jmp *%r11\n"                            \
      "6: cmpq $-1, %rax\n  jne 7f\n  xorl %eax, %eax\n"       \
      "7: ret\n"                                               \
      "  .cfi_endproc\n"                                       \
      ".size " #name ", .-" #name "\n")
#elif defined(__aarch64__)
/* Arguments: x0 handle, x1 symbol, x2 version. x3 and x9 to x17 are free for us. */
#define ENTRY_POINT(name)                                                                            \
  __asm__(                                                                                           \
      ".text\n.p2align 4\n.globl " #name "\n.type " #name ", %function\n" #name                      \
      ":\n"                                                                                          \
      "  .cfi_startproc\n"                                                                           \
      "  hint #34\n"                                                                                 \
      "  adrp x16, aq_next_" #name "\n  ldr x16, [x16, #:lo12:aq_next_" #name                        \
      "]\n"                                                                                          \
      "  cbz x16, 3f\n"                                                                              \
      "1: cbz x1, 2f\n"                                                                              \
      "  ldrb w9, [x1]\n  cmp w9, #'c'\n  b.ne 5f\n"                                                 \
      "  ldrb w9, [x1, #1]\n  cmp w9, #'u'\n  b.eq 4f\n  br x16\n"                                   \
      "5: cmp w9, #'n'\n  b.ne 2f\n"                                                                 \
      "  ldrb w9, [x1, #1]\n  cmp w9, #'v'\n  b.eq 4f\n"                                             \
      "2: br x16\n"                                                                                  \
      "3: stp x29, x30, [sp, #-48]!\n  stp x0, x1, [sp, #16]\n  str x2, [sp, #32]\n"                 \
      "  bl aq_find_next_" #name                                                                     \
      "\n  mov x16, x0\n  ldr x2, [sp, #32]\n  ldp x0, x1, [sp, #16]\n  ldp x29, x30, [sp], #48\n"   \
      "  cbnz x16, 1b\n  mov x0, #0\n  ret\n"                                                        \
      "4: stp x29, x30, [sp, #-48]!\n  stp x0, x1, [sp, #16]\n  str x2, [sp, #32]\n"                 \
      "  mov x3, x30\n  bl aq_" #name                                                                \
      "_answer\n  mov x9, x0\n  ldr x2, [sp, #32]\n  ldp x0, x1, [sp, #16]\n  ldp x29, x30, [sp], #48\n" \
      "  cbnz x9, 6f\n"                                                                              \
      "  adrp x16, aq_next_" #name "\n  ldr x16, [x16, #:lo12:aq_next_" #name                        \
      "]\n  br x16\n"                                                                                \
      "6: cmn x9, #1\n  csel x0, xzr, x9, eq\n  ret\n"                                               \
      "  .cfi_endproc\n"                                                                             \
      ".size " #name ", .-" #name "\n")
#else
#error "no entry points for this machine"
#endif

ENTRY_POINT(dlsym);
ENTRY_POINT(dlvsym);
