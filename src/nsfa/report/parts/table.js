// A table of many rows: sorted by clicks on its headings, shown page by page. Cells are text, never markup.
class PagedTable {
  // columns: { title, number, value(row), text(row), share(row), long }
  constructor(root, columns, caption, pageSize = 25) {
    Object.assign(this, { columns, pageSize, rows: [], order: [], at: 0, sorted: -1, falling: false });
    const box = document.createElement("div");
    box.className = "scroll paged";
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", caption);
    const table = document.createElement("table");
    table.createCaption().textContent = caption;
    this.caption = table.caption;
    const head = table.createTHead().insertRow();
    this.heads = columns.map((column, i) => this.heading(head, column, i));
    this.body = table.createTBody();
    box.append(table);
    root.append(box, this.makePager());
  }

  heading(head, column, i) {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (column.number) cell.className = "number";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = column.title;
    button.addEventListener("click", () => this.sortBy(i));
    cell.append(button);
    head.append(cell);
    return cell;
  }

  makePager() {
    const pager = document.createElement("div");
    pager.className = "pager";
    [this.back, this.next] = ["Previous", "Next"].map((text, i) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.addEventListener("click", () => { this.at += i ? 1 : -1; this.show(); });
      return button;
    });
    this.where = document.createElement("span");
    pager.append(this.back, this.where, this.next);
    return pager;
  }

  setRows(rows, caption) {
    this.rows = rows;
    if (caption) this.caption.textContent = caption;
    this.sort();
  }

  // numbers start with the largest, text with A; a second click turns the order over
  sortBy(i) {
    this.falling = this.sorted === i ? !this.falling : Boolean(this.columns[i].number);
    this.sorted = i;
    this.sort();
  }

  sort() {
    this.at = 0;
    this.order = Array.from(this.rows);
    if (this.sorted >= 0) {
      const { value } = this.columns[this.sorted], sign = this.falling ? -1 : 1;
      const keyed = this.order.map((row) => [value(row), row]);
      keyed.sort(([a], [b]) => (a < b ? -sign : a > b ? sign : 0));
      this.order = keyed.map(([, row]) => row);
    }
    this.heads.forEach((head, i) => {
      if (i === this.sorted) head.setAttribute("aria-sort", this.falling ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.show();
  }

  show() {
    const pages = Math.max(1, Math.ceil(this.order.length / this.pageSize)), from = this.at * this.pageSize;
    const some = this.order.slice(from, from + this.pageSize);
    this.body.replaceChildren(...some.map((row) => this.line(row)));
    if (!some.length) this.body.insertRow().insertCell().textContent = "Nothing to show.";
    this.where.textContent = some.length ? `${(from + 1).toLocaleString("en")} to ${(from + some.length).toLocaleString("en")} of ${this.order.length.toLocaleString("en")}` : "";
    this.back.disabled = this.at === 0;
    this.next.disabled = this.at >= pages - 1;
  }

  line(row) {
    const line = document.createElement("tr");
    for (const column of this.columns) {
      const cell = line.insertCell();
      cell.className = column.number ? "number" : column.long ? "long" : "name";
      cell.textContent = column.text(row);
      if (column.share) cell.append(this.bar(column.share(row)));
    }
    return line;
  }

  bar(share) {
    const room = document.createElement("span"), bar = document.createElement("span");
    room.className = "room";
    bar.className = "bar";
    bar.style.width = `${Math.min(Math.max(share, 0), 1) * 4.4}rem`;
    room.append(bar);
    return room;
  }
}
