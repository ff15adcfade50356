/* Finds the real functions and decides who gets which. */
typedef int aq_placeholder;
