/* How cudart_client finds the driver's entries, and the few types that it passes them: our own declarations. */
#ifndef CUDART_LOOKUP_H
#define CUDART_LOOKUP_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uintptr_t pointer;

static void *library;
static const char *by = "gpa", *order_file;
static bool per_thread;
static int device;
static int (*get_proc_address)(const char *, void **, int, uint64_t, int *);

/* ---- what libcudart looks up at its start ---- */

struct looked_up {
    char name[64];
    int version, status;
    unsigned long flags;
    void *entry;
};

static struct looked_up order[1024];
static size_t ordered;

static const char *symbol_of(void *entry)
{
    Dl_info info = {0};
    return entry != NULL && dladdr(entry, &info) != 0 && info.dli_sname != NULL ? info.dli_sname : "";
}

/* Whether a line of the file was a look-up. A version of -1 stands for dlsym, a name of "-" for none. */
static bool look_up(const char *line, struct looked_up *out)
{
    *out = (struct looked_up){.version = -1};
    if (sscanf(line, "dlsym %63s", out->name) == 1) {
        out->entry = dlsym(library, out->name);
        if (strcmp(out->name, "cuGetProcAddress_v2") == 0)
            *(void **)&get_proc_address = out->entry;
        return true;
    }
    if (*line == '#' || sscanf(line, "%63s %d %lu", out->name, &out->version, &out->flags) != 3)
        return false;
    const char *name = strcmp(out->name, "-") == 0 ? "" : out->name;
    get_proc_address(name, &out->entry, out->version, out->flags, &out->status);
    return true;
}

/* Makes the look-ups that a file lists (tests/data/cudart), in its order. */
static void look_up_in_order(const char *path)
{
    char line[256];
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL && ordered < sizeof order / sizeof *order)
        ordered += look_up(line, &order[ordered]);
    if (file == NULL || ordered == 0) {
        fprintf(stderr, "cudart_client: cannot read %s\n", path);
        exit(2);
    }
    fclose(file);
}

static void *found_in_order(const char *abi)
{
    for (size_t i = 0; i < ordered; i++)
        if (strcmp(symbol_of(order[i].entry), abi) == 0)
            return order[i].entry;
    return NULL;
}

/* ---- finding entries ---- */

/* An entry: the CUDA version whose ABI we speak, its plain name, its ABI name and that of its per-thread twin (NULL: none). */
struct name {
    int since;
    const char *plain, *abi, *twin;
};

/* Twins came with CUDA 7. */
static int version_of(struct name name)
{
    return per_thread && name.twin != NULL && name.since < 7000 ? 7000 : name.since;
}

static void *find(struct name name)
{
    void *entry = NULL;
    int status = 0;
    const char *abi = per_thread && name.twin != NULL ? name.twin : name.abi;
    if (ordered > 0)
        entry = found_in_order(abi);
    else if (strcmp(by, "dlsym") == 0)
        entry = dlsym(library, abi);
    else if (strcmp(by, "dlvsym") == 0)
        entry = dlvsym(library, abi, "libcuda.so.1");
    else
        get_proc_address(name.plain, &entry, version_of(name), per_thread ? 2 : 1, &status);
    if (entry == NULL && strcmp(by, "dlvsym") == 0)
        entry = dlsym(library, abi);
    if (entry == NULL) {
        fprintf(stderr, "cudart_client: no %s by %s\n", name.plain, by);
        exit(2);
    }
    return entry;
}

/* CALL(type of the arguments, since, plain, abi, twin)(arguments) */
#define CALL(signature, since, plain, abi, twin) \
    ((int(*) signature)(uintptr_t)find((struct name){since, plain, abi, twin}))

/* ---- types ---- */

struct location {
    int type, id;
};

struct prop {
    int type, handle_types;
    struct location location;
    void *unused;
    uint64_t flags;
};

struct pool_props {
    int type, handle_types;
    struct location location;
    void *unused;
    size_t max_size;
    char reserved[56];
};

struct access {
    struct location location;
    int flags;
};

#endif
