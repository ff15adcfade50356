/* The table itself. It sees no prototypes, so that one line declares each entry, whatever its arguments. */
#include "table.h"

#include <string.h>

#define ENTRY(base, symbol, since, stream) CUresult symbol(void);
#include "../entries/all.def"
#undef ENTRY

struct entry {
    const char *base;
    const char *mark; /* "=" and the symbol: blotted out in the library of a driver that is made to lack the entry */
    CUresult (*symbol)(void);
    int since;
    enum sim_stream_kind stream;
};

static const struct entry entries[] = {
#define ENTRY(base, symbol, since, stream) {#base, "=" #symbol, symbol, since, stream},
#include "../entries/all.def"
#undef ENTRY
};

void *sim_table_find(const char *name, int version, enum sim_stream_kind stream, bool *known)
{
    const struct entry *best = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const struct entry *entry = &entries[i];
        if (entry->mark[0] != '=' || strcmp(entry->base, name) != 0)
            continue;
        *known = true;
        if (entry->stream == stream && entry->since <= version && (best == NULL || entry->since > best->since))
            best = entry;
    }
    return best == NULL ? NULL : (void *)(uintptr_t)best->symbol;
}

bool sim_table_has(const char *name, enum sim_stream_kind stream)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        if (entries[i].stream == stream && entries[i].mark[0] == '=' && strcmp(entries[i].base, name) == 0)
            return true;
    return false;
}
