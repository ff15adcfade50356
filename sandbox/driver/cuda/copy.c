/* How bytes are moved. */
#include "copy.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void copy_slice(const struct sim_copy *copy, const char *source, char *target)
{
    for (size_t row = 0; row < copy->height; row++)
        memmove(target + row * copy->target_pitch, source + row * copy->source_pitch, copy->width);
}

void sim_copy_run(const struct sim_copy *copy)
{
    for (size_t slice = 0; slice < copy->depth; slice++)
        copy_slice(copy, copy->source + slice * copy->source_slice, copy->target + slice * copy->target_slice);
    free(copy->staged);
}

/* Zeroing whole pages gives them back to the host instead of touching them. */
static void zero(char *target, size_t size)
{
    enum { PAGE = 4096 };
    uintptr_t start = ((uintptr_t)target + PAGE - 1) / PAGE * PAGE, end = ((uintptr_t)target + size) / PAGE * PAGE;
    if (end <= start || madvise((void *)start, end - start, MADV_DONTNEED) != 0) {
        memset(target, 0, size);
        return;
    }
    memset(target, 0, start - (uintptr_t)target);
    memset((void *)end, 0, (uintptr_t)target + size - end);
}

static void set_row(const struct sim_set *set, char *row)
{
    if (set->element == 1) {
        memset(row, (int)set->value, set->width);
        return;
    }
    for (size_t i = 0; i < set->width; i++)
        memcpy(row + i * set->element, &set->value, set->element); /* little end first, as x86 and arm64 have it */
}

void sim_set_run(const struct sim_set *set)
{
    size_t row_bytes = set->width * set->element;
    if (set->value == 0 && (set->height == 1 || set->pitch == row_bytes)) {
        zero(set->target, row_bytes * set->height);
        return;
    }
    for (size_t row = 0; row < set->height; row++)
        set_row(set, set->target + row * set->pitch);
}
