const state = document.getElementById('live-state');
const shown = new Map();
const events = new EventSource(document.body.dataset.events);
events.onmessage = (event) => {
  for (const [id, content] of Object.entries(JSON.parse(event.data))) {
    const part = document.getElementById(id);
    if (part && shown.get(id) !== content) {
      part.innerHTML = content;
      shown.set(id, content);
    }
  }
};
events.onerror = () => {
  state.textContent = events.readyState === EventSource.CLOSED
    ? 'No longer live: reload the page.'
    : 'Not live: connecting again.';
};
addEventListener('pagehide', () => events.close());
