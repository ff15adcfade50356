/* Finds functions of loaded libraries by reading their symbol tables, without calling the dynamic loader's API.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef AQ_ELF_LOOKUP_H
#define AQ_ELF_LOOKUP_H

#include <stdint.h>

/* The first definition of `symbol` in load order after the library that contains `self`, as RTLD_NEXT would find it;
 * with a non-NULL `soname` only in libraries whose name starts with it. NULL when there is none. */
void *aq_elf_next(const void *self, const char *soname, const char *symbol);

/* An address in the dynamic section of a library: the loader relocates these in place for most, not for all (the vDSO). */
const void *aq_elf_place(uintptr_t base, uintptr_t value);

#endif
