'use strict';
(function () {
  var table = document.getElementById('tasks');
  if (!table) { return; }
  var body = table.tBodies[0];
  var rows = Array.prototype.slice.call(body.rows);
  var word = document.getElementById('word');
  var state = document.getElementById('state');
  var count = document.getElementById('count');
  function filter() {
    var text = word.value.toLowerCase();
    var shown = 0;
    rows.forEach(function (row) {
      var fits = row.textContent.toLowerCase().indexOf(text) !== -1;
      var alike = state.value === '' || row.getAttribute('data-state') === state.value;
      row.hidden = !(fits ? alike : false);
      shown += row.hidden ? 0 : 1;
    });
    count.textContent = shown + ' of ' + rows.length;
  }
  function key(row, column) {
    var cell = row.cells[column];
    var number = cell.getAttribute('data-key');
    return number === null ? cell.textContent.toLowerCase() : number === '' ? -1 : Number(number);
  }
  function order(a, b) { return a === b ? 0 : a > b ? 1 : -1; }
  Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head, column) {
    var button = head.querySelector('button');
    var down = false;
    button.addEventListener('click', function () {
      down = !down;
      rows.sort(function (a, b) {
        return order(key(a, column), key(b, column)) * (down ? -1 : 1);
      });
      rows.forEach(function (row) { body.appendChild(row); });
    });
  });
  word.addEventListener('input', filter);
  state.addEventListener('change', filter);
  document.getElementById('filters').hidden = false;
  filter();
}());
