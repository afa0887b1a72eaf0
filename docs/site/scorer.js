/* Pages before the API, notebooks first among equals; "R@K" is one word, as in the index. */
var Scorer = {
  score: ([page, , , , score]) =>
    score + (page.startsWith("notebooks/") ? 3 : page.startsWith("docs/api/") ? -100 : 0),
  objNameMatch: 11, objPartialMatch: 6, objPrio: {0: 15, 1: 5, 2: -5}, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
var splitQuery = (query) => query.split(/[^\p{Letter}\p{Number}_@]+/gu).filter((word) => word);
/* Excerpts are read from the pages, which a browser allows only where they are served. */
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
