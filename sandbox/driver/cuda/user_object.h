/* User objects: what a program wants destroyed when the last graph that uses it is gone. */
#ifndef SIM_USER_OBJECT_H
#define SIM_USER_OBJECT_H

#include <stdbool.h>

struct sim_user_object;

/* References that a graph holds. */
struct sim_user_reference {
    struct sim_user_object *object;
    unsigned int count;
    struct sim_user_reference *next;
};

/* Copies and gives up all references of a graph. */
bool sim_user_references_copy(struct sim_user_reference **to, const struct sim_user_reference *from);
void sim_user_references_drop(struct sim_user_reference **references);

#endif
