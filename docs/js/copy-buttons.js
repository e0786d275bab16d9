"use strict";
// The theme puts each copy button into a landmark for navigation without a name; screen readers list all of them.
const unmark = () => document.querySelectorAll("nav.md-code__nav").forEach((nav) => nav.setAttribute("role", "none"));
new MutationObserver(unmark).observe(document.body, { childList: true, subtree: true });
