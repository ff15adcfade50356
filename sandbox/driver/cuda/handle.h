/*
 * What the caller holds in place of our objects. A handle looks like a pointer but is checked before it is followed: garbage,
 * and handles of objects that are gone, are answered with an error, where a real driver may crash.
 */
#ifndef SIM_HANDLE_H
#define SIM_HANDLE_H

enum sim_kind {
    SIM_FREE,
    SIM_CONTEXT,
    SIM_STREAM,
    SIM_EVENT,
    SIM_LIBRARY,
    SIM_MODULE,
    SIM_KERNEL,
    SIM_FUNCTION,
    SIM_POOL,
    SIM_ARRAY,
    SIM_MIPMAP,
    SIM_ALLOCATION,
    SIM_GRAPH,
    SIM_GRAPH_NODE,
    SIM_GRAPH_EXEC,
    SIM_USER_OBJECT,
    SIM_EXTERNAL,
    SIM_GREEN,
    SIM_RESOURCES,
    SIM_TEXTURE,
    SIM_SURFACE,
};

/* A new handle for an object; NULL when there are too many. */
void *sim_handle_new(enum sim_kind kind, void *object);
/* The object behind a handle; NULL when it is no living handle of that kind. Takes no lock. */
void *sim_handle_get(const void *handle, enum sim_kind kind);
/* Ends a handle and returns its object; NULL as above. Of several callers one gets it. */
void *sim_handle_end(const void *handle, enum sim_kind kind);

#endif
