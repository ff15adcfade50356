/* The table of entries: what cuGetProcAddress searches. */
#ifndef SIM_TABLE_H
#define SIM_TABLE_H

#include <stdbool.h>

#include "../include/simcuda.h"

enum sim_stream_kind { STREAM_LEGACY, STREAM_PER_THREAD };

/* The newest entry of that name and kind that `version` may have, or NULL; *known becomes true when the name exists at all. */
void *sim_table_find(const char *name, int version, enum sim_stream_kind stream, bool *known);

/* Whether the name has entries of that kind, whatever their version. */
bool sim_table_has(const char *name, enum sim_stream_kind stream);

#endif
