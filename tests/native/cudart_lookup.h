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
static const char *by = "gpa";
static bool per_thread;
static int device;
static int (*get_proc_address)(const char *, void **, int, uint64_t, int *);

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
    if (strcmp(by, "dlsym") == 0)
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
